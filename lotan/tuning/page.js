"use strict";
// Lets axes be brushed, lines be followed and the table be sorted, on a page that shows everything without it.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (name, attributes = {}) => {
    const element = document.createElementNS(picture.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const tip = document.getElementById("tip");
  const reset = document.getElementById("reset");
  const count = document.getElementById("count");
  const picture = document.querySelector(".coordinates");
  const rows = all("tbody tr");
  const body = document.querySelector("tbody");
  document.documentElement.classList.add("script");

  // --- one model, followed everywhere

  const heads = all("thead th").map((head) => head.textContent);
  const told = new Map(rows.map((row) => {
    const cells = all("th, td", row).map((cell) => cell.textContent);
    return [row.dataset.trial, cells.map((cell, at) => `${heads[at]} ${cell}`)];
  }));
  let followed = null;

  const follow = (trial) => {
    if (trial === followed) return;
    for (const element of all("[data-trial].lit")) element.classList.remove("lit");
    followed = trial;
    if (trial === null) return;
    for (const element of all(`[data-trial="${trial}"]`)) {
      element.classList.add("lit");
      if (element.localName === "polyline") element.parentElement.append(element);  // on top
    }
  };
  const hush = () => { tip.hidden = true; };
  const tell = (trial, x, y) => {
    const [first, ...rest] = told.get(trial);
    const heading = document.createElement("b");
    heading.textContent = first;
    tip.replaceChildren(heading, rest.join("\n"));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 16, innerWidth - width - 6))}px`;
    tip.style.top = `${Math.max(6, y + 18 + height > innerHeight ? y - height - 12 : y + 18)}px`;
  };

  const points = new Map(all("polyline").map((line) => [
    line, line.getAttribute("points").split(" ").filter(Boolean).map((pair) => pair.split(",").map(Number)),
  ]));
  const distance = (x, y, [[x1, y1], [x2, y2]]) => {
    const [dx, dy] = [x2 - x1, y2 - y1];
    const along = dx || dy ? Math.min(1, Math.max(0, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy))) : 0;
    return Math.hypot(x1 + along * dx - x, y1 + along * dy - y);
  };
  const nearest = (svg, x, y) => {
    let [found, least] = [null, 12];
    for (const line of all("polyline:not(.away)", svg)) {
      const places = points.get(line);
      for (let at = 0; at < places.length; at += 1) {
        const far = distance(x, y, [places[at], places[Math.min(at + 1, places.length - 1)]]);
        if (far < least) [found, least] = [line.dataset.trial, far];
      }
    }
    return found;
  };
  const within = (svg, event) => {
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [x, y];
  };
  for (const svg of all("svg")) {
    svg.addEventListener("pointermove", (event) => {
      const trial = event.buttons ? null : nearest(svg, ...within(svg, event));
      follow(trial);
      if (trial === null) hush();
      else tell(trial, event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", () => { follow(null); hush(); });
  }
  for (const row of rows) {
    row.addEventListener("pointerenter", () => follow(row.dataset.trial));
    row.addEventListener("pointerleave", () => follow(null));
    row.addEventListener("focus", () => {
      for (const other of rows) other.tabIndex = other === row ? 0 : -1;
      follow(row.dataset.trial);
    });
    row.addEventListener("blur", () => follow(null));
    row.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step) return;
      const shown = all("tr:not(.away)", body);
      shown[(shown.indexOf(row) + step + shown.length) % shown.length].focus();
      event.preventDefault();
    });
  }

  // --- brushes: on each axis, from one height to another

  const axes = all(".axis").map((group) => {
    const { x, top, bottom, low, high, kind, name, ticks } = group.dataset;
    const labels = ticks.split("|").map((tick) => {
      const at = tick.indexOf("=");
      return [Number(tick.slice(0, at)), tick.slice(at + 1)];
    });
    const [from, to] = [Number(top), Number(bottom)];
    return { group, name, kind, labels, x: Number(x), top: from, bottom: to, low: Number(low), high: Number(high),
      brush: [from, to] };
  });
  const lines = all("polyline", picture).map((line) => [line.dataset.trial, line.dataset.at.split(" ").map(Number)]);
  const slack = 0.6;  // of a pixel: an end that lies on a value keeps it

  const isWhole = ({ brush, top, bottom }) => brush[0] <= top && brush[1] >= bottom;
  const apply = () => {
    const away = new Set();
    for (const [trial, heights] of lines) {
      const kept = axes.every(({ brush }, at) => heights[at] >= brush[0] - slack && heights[at] <= brush[1] + slack);
      if (!kept) away.add(trial);
    }
    for (const element of all("[data-trial]")) element.classList.toggle("away", away.has(element.dataset.trial));
    reset.hidden = axes.every(isWhole);
    count.textContent = away.size ? `${lines.length - away.size} of ${lines.length} shown` : "";
    const shown = all("tr:not(.away)", body);
    for (const row of rows) row.tabIndex = row === shown[0] ? 0 : -1;
  };

  // What lies at a height, in words: of an axis of values, the next one inside the brush.
  const valueAt = (axis, height, inwards) => {
    if (axis.kind === "ordinal") {
      const inside = axis.labels.filter(([at]) => (inwards > 0 ? at >= height - slack : at <= height + slack));
      const next = inside.sort((one, other) => inwards * (one[0] - other[0]))[0];
      return next ? next[1] : "nothing";
    }
    const foot = axis.labels[0][1] === "none" ? axis.labels[1][0] : axis.bottom;
    const share = Math.max(0, (foot - height) / (foot - axis.top));
    const value = axis.kind === "log" ? axis.low * (axis.high / axis.low) ** share : axis.low + share * (axis.high - axis.low);
    return String(Number(value.toPrecision(3)));
  };

  const arrange = (axis) => {
    const [from, to] = axis.brush;
    axis.box.setAttribute("y", from);
    axis.box.setAttribute("height", Math.max(0, to - from));
    axis.box.style.display = isWhole(axis) ? "none" : "";
    axis.handles.forEach((handle, end) => {
      handle.setAttribute("transform", `translate(${axis.x} ${axis.brush[end]})`);
      handle.setAttribute("aria-valuenow", Math.round(100 * (axis.bottom - axis.brush[end]) / (axis.bottom - axis.top)));
      handle.setAttribute("aria-valuetext", valueAt(axis, axis.brush[end], end ? -1 : 1));
    });
  };
  const set = (axis, from, to) => {
    const inside = (height) => Math.min(axis.bottom, Math.max(axis.top, height));
    axis.brush = [inside(Math.min(from, to)), inside(Math.max(from, to))];
    arrange(axis);
    apply();
  };
  const clear = () => {
    for (const axis of axes) set(axis, axis.top, axis.bottom);
  };

  // From value to value on an axis that has few, else by a twentieth.
  const stepped = (axis, height, direction) => {
    if (axis.kind !== "ordinal") return height + direction * (axis.bottom - axis.top) / 20;
    const places = axis.labels.map(([at]) => at).sort((one, other) => one - other);
    const ahead = places.filter((at) => (at - height) * direction > slack);
    if (!ahead.length) return direction > 0 ? axis.bottom : axis.top;
    return direction > 0 ? ahead[0] : ahead.at(-1);
  };

  const dragged = (axis, event, start) => {
    const [, first] = within(picture, event);
    const fixed = start ?? first;
    const move = (moved) => set(axis, fixed, within(picture, moved)[1]);
    const end = (ended) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      const [from, to] = axis.brush;
      if (start === undefined && to - from < 3) set(axis, axis.top, axis.bottom);  // a click: all of it again
      ended.preventDefault();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
    event.preventDefault();
  };

  for (const axis of axes) {
    axis.box = make("rect", { class: "brush", x: axis.x - 8, width: 16 });
    const reach = make("rect", { class: "reach", x: axis.x - 12, y: axis.top - 8, width: 24,
      height: axis.bottom - axis.top + 16 });
    reach.addEventListener("pointerdown", (event) => dragged(axis, event));
    axis.handles = ["greatest", "least"].map((word, end) => {
      const handle = make("g", { class: "handle", role: "slider", tabindex: 0, "aria-orientation": "vertical",
        "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": `${axis.name}, ${word} shown` });
      handle.append(make("path", { d: end ? "M -8 1 H 8 L 4 9 H -4 Z" : "M -8 -1 H 8 L 4 -9 H -4 Z" }));
      handle.addEventListener("pointerdown", (event) => {
        handle.focus();
        dragged(axis, event, axis.brush[1 - end]);
        event.stopPropagation();
      });
      handle.addEventListener("keydown", (event) => {
        const direction = { ArrowUp: -1, ArrowRight: -1, ArrowDown: 1, ArrowLeft: 1 }[event.key];
        const far = { Home: axis.bottom, End: axis.top }[event.key];
        if (!direction && far === undefined) return;
        const moved = far ?? stepped(axis, axis.brush[end], direction);
        const ends = [...axis.brush];
        ends[end] = end ? Math.max(moved, ends[0]) : Math.min(moved, ends[1]);
        set(axis, ...ends);
        event.preventDefault();
      });
      return handle;
    });
    axis.group.append(axis.box, reach, ...axis.handles);
    arrange(axis);
  }
  reset.addEventListener("click", clear);
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    hush();
    clear();
  });
  apply();

  // --- the table, sorted by any of its columns

  const keyOf = (row, at) => {
    const text = row.cells[at].textContent;
    const number = Number(text);
    return text !== "" && !Number.isNaN(number) ? [0, number] : text === "-" ? [2, ""] : [1, text];
  };
  const compare = ([kind, one], [other, two]) => kind - other || (one < two ? -1 : one > two ? 1 : 0);
  const columns = all("thead th");
  for (const [at, head] of columns.entries()) {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of columns) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = rows.map((row) => [keyOf(row, at), row]);
      sorted.sort(([one], [two]) => (down ? compare(two, one) : compare(one, two)));
      body.append(...sorted.map(([, row]) => row));
      apply();
    });
  }
})();
