"""Moves micro-batches between Dealers and DL workers over ZeroMQ, exactly once in effect.

The package knows neither Spark nor torch nor plans.

The driver starts one Router (`messenger.router_process`) and the workers, and has the one coordinator:

    link = CoordinatorLink(endpoint, settings)               # messenger.coordinator
    link.wait_for_workers(2)
    link.publish(run, stage_name, program)                   # plain data; workers fetch it when they first need it
    link.begin(run, number, parameters, {"seed": 0})         # float arrays; number = number of this pass
    totals = link.wait([PipeJob(run, number, stage, mode, p) for p in range(P)])
    totals.tensors["gradient/layer.weight"], totals.tensors["statistics"]        # float64, summed in partition order
    link.lost(worker_name, reason); link.forget(run); link.stop_router(); link.close()

Each Spark task pipes its partition through a Dealer, which lives as long as the Python process:

    dealer = shared_dealer(endpoint, settings)               # messenger.dealer; one per process and endpoint
    for returned in dealer.pipe(job, outgoing_chunks):       # in order, several in flight; commits after the last one
        ...

If Dealer and worker share a host, tensors go through shared memory (`messenger.shared_memory`), and only headers go
through the Router. `totals.bytes_shared` is the number of bytes that did.

A worker process runs `WorkerLoop(endpoint, handler, name, settings).run()` (messenger.worker_loop). It returns when the
Router says stop, and raises when the Router is lost.
"""
