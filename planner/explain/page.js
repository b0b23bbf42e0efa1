"use strict";
// Makes tabs, tooltips, zoom and switches of a page that shows everything without them.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const tip = document.getElementById("tip");
  document.documentElement.classList.add("script");
  all(".bar, [role=switch]").forEach((element) => { element.hidden = false; });

  // --- tooltips: what <title> says, at once and for the keyboard too

  for (const title of all("svg title")) {
    const owner = title.parentElement;
    owner.dataset.told = title.textContent;
    owner.setAttribute("aria-label", title.textContent.replaceAll("\n", "; "));
    title.remove();
  }

  const tell = (element, x, y) => {
    const [first, ...rest] = element.dataset.told.split("\n");
    const heading = document.createElement("b");
    heading.textContent = first;
    tip.replaceChildren(heading, rest.join("\n"));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 16, innerWidth - width - 6))}px`;
    tip.style.top = `${Math.max(6, y + 18 + height > innerHeight ? y - height - 12 : y + 18)}px`;
  };
  const hush = () => { tip.hidden = true; };

  const light = (box, on) => {
    const key = box.dataset.key;
    for (const arrow of all(".arrow", box.ownerSVGElement)) {
      const { source, target } = arrow.dataset;
      arrow.classList.toggle("lit", on && (source === key || target === key));
    }
    box.classList.toggle("near", on);
  };

  for (const told of all("[data-told]")) {
    told.addEventListener("pointermove", (event) => { event.stopPropagation(); tell(told, event.clientX, event.clientY); });
    told.addEventListener("pointerleave", hush);
  }
  for (const box of all(".box")) {
    box.addEventListener("pointerenter", () => light(box, true));
    box.addEventListener("pointerleave", () => light(box, false));
    box.addEventListener("blur", () => { light(box, false); hush(); });
    box.addEventListener("focus", () => {
      for (const other of all(".box", box.ownerSVGElement)) other.setAttribute("tabindex", other === box ? 0 : -1);
      light(box, true);
      const { right, top } = box.getBoundingClientRect();
      tell(box, right, top);
    });
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hush(); });

  // --- from box to box with the arrow keys

  const place = (box) => {
    const { x, y, width, height } = box.querySelector("rect").getBBox();
    return [x + width / 2, y + height / 2];
  };
  const ahead = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

  const nextBox = (from, [across, down]) => {
    const [x, y] = place(from);
    let best = null;
    let least = Infinity;
    for (const box of all(".box", from.ownerSVGElement)) {
      const [dx, dy] = [place(box)[0] - x, place(box)[1] - y];
      const forward = dx * across + dy * down;
      const aside = Math.abs(dx * down) + Math.abs(dy * across);
      if (forward > 1 && forward + 2 * aside < least) [best, least] = [box, forward + 2 * aside];
    }
    return best;
  };

  // --- zoom: the picture's own size, in a box that scrolls

  const scales = new WeakMap();
  const natural = (svg) => [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];

  const zoom = (scroll, scale, x = scroll.clientWidth / 2, y = scroll.clientHeight / 2) => {
    const svg = scroll.querySelector("svg");
    const before = scales.get(svg) ?? 1;
    const after = Math.min(4, Math.max(0.05, scale));
    const [width, height] = natural(svg);
    const [left, top] = [(scroll.scrollLeft + x) / before, (scroll.scrollTop + y) / before];
    svg.style.width = `${width * after}px`;
    svg.style.height = `${height * after}px`;
    scales.set(svg, after);
    [scroll.scrollLeft, scroll.scrollTop] = [left * after - x, top * after - y];
  };
  const zooms = {
    in: (scroll) => zoom(scroll, (scales.get(scroll.querySelector("svg")) ?? 1) * 1.25),
    out: (scroll) => zoom(scroll, (scales.get(scroll.querySelector("svg")) ?? 1) / 1.25),
    fit: (scroll) => zoom(scroll, Math.min(1.25, scroll.clientWidth / natural(scroll.querySelector("svg"))[0])),
    whole: (scroll) => {
      const [width, height] = natural(scroll.querySelector("svg"));
      const most = Number.parseFloat(getComputedStyle(scroll).maxHeight) || scroll.clientHeight;
      zoom(scroll, Math.min(1.25, scroll.clientWidth / width, (most - 4) / height));
    },
  };
  const readable = (scroll) => {
    const [width] = natural(scroll.querySelector("svg"));
    zoom(scroll, Math.min(1, Math.max(0.7, scroll.clientWidth / width)), 0, 0);
  };
  const keys = { "+": "in", "=": "in", "-": "out", 0: "fit" };

  for (const scroll of all(".scroll")) {
    scroll.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const { left, top } = scroll.getBoundingClientRect();
      const scale = (scales.get(scroll.querySelector("svg")) ?? 1) * Math.exp(-event.deltaY / 400);
      zoom(scroll, scale, event.clientX - left, event.clientY - top);
    }, { passive: false });
    scroll.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const box = event.target.closest(".box");
      if (event.key in keys) zooms[keys[event.key]](scroll);
      else if (box && event.key in ahead) nextBox(box, ahead[event.key])?.focus();
      else return;
      event.preventDefault();
    });
    scroll.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      const start = [event.clientX + scroll.scrollLeft, event.clientY + scroll.scrollTop];
      const move = ({ clientX, clientY }) => {
        scroll.classList.add("dragging");
        [scroll.scrollLeft, scroll.scrollTop] = [start[0] - clientX, start[1] - clientY];
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", () => {
        removeEventListener("pointermove", move);
        scroll.classList.remove("dragging");
      }, { once: true });
    });
    for (const [at, box] of all(".box", scroll).entries()) box.setAttribute("tabindex", at === 0 ? 0 : -1);
  }
  for (const button of all("[data-zoom]")) {
    button.addEventListener("click", () => {
      all("section:not([hidden]) figure:not([hidden]) .scroll").forEach(zooms[button.dataset.zoom]);
    });
  }

  // --- tabs

  const tabs = all("[role=tab]");
  const seen = new WeakSet();
  const arrange = () => {
    for (const scroll of all("section:not([hidden]) figure:not([hidden]) .scroll")) {
      if (!seen.has(scroll)) readable(scroll);
      seen.add(scroll);
    }
  };
  const open = (tab) => {
    for (const other of tabs) {
      other.setAttribute("aria-selected", other === tab);
      other.setAttribute("tabindex", other === tab ? 0 : -1);
      document.getElementById(other.getAttribute("aria-controls")).hidden = other !== tab;
    }
    hush();
    arrange();
  };
  for (const [at, tab] of tabs.entries()) {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = tabs[(at + step + tabs.length) % tabs.length];
      open(next);
      next.focus();
    });
  }

  for (const button of all("[data-opens]")) {
    button.addEventListener("click", () => {
      const tab = document.getElementById(button.dataset.opens);
      open(tab);
      tab.focus();
    });
  }

  // --- switches: the plan as it is, or without one rule

  const switches = all("[role=switch]");
  const show = (rule) => {
    for (const section of all("section")) {
      const figures = all("figure", section);
      const chosen = figures.find((figure) => figure.dataset.without === rule);
      for (const figure of figures) figure.hidden = chosen ? figure !== chosen : "without" in figure.dataset;
      for (const note of all(".notes p", section)) note.hidden = note.dataset.without !== rule;
    }
    for (const other of switches) other.setAttribute("aria-checked", other.dataset.rule !== rule);
    hush();
    arrange();
  };
  for (const one of switches) {
    one.addEventListener("click", () => {
      show(one.getAttribute("aria-checked") === "true" ? one.dataset.rule : null);
    });
  }

  if (tabs.length) open(tabs.find((tab) => tab.id === "tab-epoch") ?? tabs.at(-1));
  else arrange();
})();
