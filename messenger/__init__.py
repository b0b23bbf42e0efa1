"""Micro-batches between Dealers and DL workers over ZeroMQ, exactly once in effect.

Knows neither Spark nor torch nor plans.

The driver starts one Router (`messenger.router_process`) and workers, and holds the one coordinator:

    link = CoordinatorLink(endpoint, settings)               # messenger.coordinator
    link.wait_for_workers(2)
    link.publish(run, stage_name, program)                   # plain data; workers fetch it when they first need it
    link.begin(run, number, parameters, {"seed": 0})         # float arrays; number = of this pass, with its parameters
    totals = link.wait([PipeJob(run, number, stage, mode, p) for p in range(P)])
    totals.tensors["gradient/layer.weight"], totals.tensors["statistics"]        # float64, summed in partition order
    link.lost(worker_name, reason); link.forget(run); link.stop_router(); link.close()

Each Spark task pipes its partition through a Dealer, which stays for the life of the Python process:

    dealer = shared_dealer(endpoint, settings)               # messenger.dealer; one per process and endpoint
    for returned in dealer.pipe(job, outgoing_chunks):       # in order, several in flight; commits after the last one
        ...

Where Dealer and worker share a host, tensors go through shared memory and only headers through the Router
(`messenger.shared_memory`); `totals.bytes_shared` says how much.

A worker process runs `WorkerLoop(endpoint, handler, name, settings).run()` (messenger.worker_loop), which returns when
the Router says stop and raises when the Router is lost.
"""
