// The chart of learning curves: lines to choose, values under the pointer, zoom, smoothing, and three x axes.
// What is shown stands in the address, after "#learning?", so a link or a reload shows the same.
(() => {
  const TOP = 65534, GAP = 65535;  // as they are packed in chart/__init__.py
  const LEADERS = 10;  // lines at first: more cannot be told apart
  const DASHES = [[], [7, 4], [7, 3, 1.5, 3], [11, 3, 2, 3, 2, 3], [4, 3]];
  const DOTS = [1.5, 3];  // of lines that are not finished
  const AXES = {
    frames: {label: "frames", title: "training frames", show: value => compact(value)},
    time: {label: "wall time", title: "wall time of a run", show: value => duration(value)},
    dollars: {label: "dollars", title: "dollars of a run", show: value => "$" + value.toPrecision(3).replace(/\.?0+$/, "")},
  };

  // Words and numbers

  const compact = value => {
    for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= limit) return Number((value / limit).toPrecision(4)) + unit;
    return String(Number(value.toPrecision(4)));
  };
  const duration = seconds => {
    for (const [limit, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
      if (Math.abs(seconds) >= 2 * limit) return Number((seconds / limit).toPrecision(3)) + " " + unit;
    return Number(seconds.toPrecision(3)) + " s";
  };

  // Data

  const unpack = (text, low, high) => {
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Array.from({length: bytes.length / 2}, (_, at) => {
      const value = view.getUint16(2 * at, true);
      return value === GAP ? NaN : low + (high - low) * value / TOP;
    });
  };
  const unpackLine = (line, panel) => {
    const returns = text => text && unpack(text, ...panel.returns);
    const seconds = text => unpack(text, 0, panel.seconds);
    const frames = panel.frames[line.frames], seedFrames = line.at ? line.at.map(at => frames[at]) : frames;
    return {
      ...line, frames, seconds: seconds(line.seconds), value: returns(line.value), low: returns(line.low), high: returns(line.high),
      seeds: line.seeds.map(seed => ({...seed, frames: seedFrames, value: returns(seed.value), seconds: seconds(seed.seconds)})),
    };
  };
  const along = (line, curve, axis) => {
    if (axis === "frames") return curve.frames;
    if (axis === "time") return curve.seconds;
    return line.price === null ? [] : curve.seconds.map(value => value * line.price / 3600);
  };
  // An exponential mean; the first values count as much as there are of them.
  const smoothed = (values, weight) => {
    if (!values || !weight) return values;
    let sum = 0, total = 0;
    return values.map(value => {
      if (!Number.isFinite(value)) return value;
      sum = sum * weight + value;
      total = total * weight + 1;
      return sum / total;
    });
  };
  // The place of the last point at or before x; -1 where x lies outside.
  const placeAt = (xs, x) => {
    if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return -1;
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle - 1;
    }
    return low;
  };
  const ticks = (low, high, most) => {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(at * step);
    return found;
  };

  // The state, and the address that holds it

  const start = () => ({panel: 0, x: "frames", smooth: 0, seeds: null, shown: null, zoom: null});
  const parse = (panels, section) => {
    const state = start(), text = location.hash.slice(1);
    if (!text.startsWith(section + "?")) return null;
    const said = new URLSearchParams(text.slice(section.length + 1));  // decodes, and takes a stray % as it is
    const task = panels.findIndex(panel => panel.task === said.get("task") && (!said.has("metric") || panel.metric === said.get("metric")));
    state.panel = Math.max(0, task);
    if (Object.hasOwn(AXES, said.get("x"))) state.x = said.get("x");
    const smooth = Number(said.get("smooth"));
    if (smooth > 0 && smooth < 1) state.smooth = smooth;
    if (said.has("seeds")) state.seeds = said.get("seeds") === "1";
    if (said.has("show")) state.shown = new Set(said.get("show").split(".").filter(Boolean));
    const zoom = (said.get("zoom") ?? "").split("~").map(Number);
    if (zoom.length === 2 && zoom.every(Number.isFinite) && zoom[1] - zoom[0] > 1e-9 * Math.abs(zoom[1])) state.zoom = zoom;
    return state;
  };
  const address = (state, panels, section) => {
    const said = new URLSearchParams(), panel = panels[state.panel];
    if (state.panel) {
      said.set("task", panel.task);
      said.set("metric", panel.metric);
    }
    if (state.x !== "frames") said.set("x", state.x);
    if (state.smooth) said.set("smooth", state.smooth);
    if (state.seeds !== null) said.set("seeds", state.seeds ? "1" : "0");
    if (state.shown) said.set("show", [...state.shown].join("."));
    if (state.zoom) said.set("zoom", state.zoom.map(value => Number(value.toPrecision(10))).join("~"));
    const text = said.toString();
    return "#" + section + (text ? "?" + text : "");
  };

  const explore = (holder, panels) => {
    const section = holder.closest("section").id;
    const unpacked = new Map();
    let state = parse(panels, section) ?? start(), cursor = null, drag = null, frame = null;

    const panel = () => panels[state.panel];
    const lines = () => {
      if (!unpacked.has(state.panel)) unpacked.set(state.panel, panel().lines.map(line => unpackLine(line, panel())));
      return unpacked.get(state.panel);
    };
    const isShown = (line, place) => state.shown ? state.shown.has(line.id) : place < LEADERS;
    const visible = () => lines().filter(isShown).filter(line => along(line, line, state.x).length);
    // Too few seeds for an interval are drawn themselves, unless the reader decides.
    const isFew = line => !line.low && line.seeds.length > 0;
    const withSeeds = line => state.seeds ?? isFew(line);
    const dashOf = line => line.unfinished ? DOTS : DASHES[line.dash % DASHES.length];

    // The parts of the chart

    const canvas = make("canvas", {tabindex: "0", role: "img"});
    const values = make("div", {class: "values", role: "status", hidden: ""});
    const legend = make("ul", {class: "legend", "aria-label": "Lines, from the best result to the worst"});
    const task = make("select", {"aria-label": "Task"});
    panels.forEach((one, at) => task.append(make("option", {value: at}, one.task || one.metric)));
    if (new Set(panels.map(one => one.task)).size < panels.length)
      panels.forEach((one, at) => task.options[at].textContent = [one.task, one.metric].filter(Boolean).join(": "));
    const choice = make("span", {class: "choice", role: "group", "aria-label": "x axis"});
    for (const [name, axis] of Object.entries(AXES)) {
      const button = make("button", {type: "button", value: name}, axis.label);
      button.addEventListener("click", () => change({x: name, zoom: null}));
      choice.append(button);
    }
    const smooth = make("input", {type: "range", min: "0", max: "0.95", step: "0.05", name: "smooth"});
    const seeds = make("input", {type: "checkbox", name: "seeds"});
    const button = (name, label, act) => {
      const one = make("button", {type: "button", class: "press", name}, label);
      one.addEventListener("click", act);
      return one;
    };
    const reset = button("reset", "Reset zoom", () => change({zoom: null}));
    task.addEventListener("change", () => change({panel: Number(task.value), zoom: null}));
    smooth.addEventListener("input", () => change({smooth: Number(smooth.value)}));
    seeds.addEventListener("change", () => change({seeds: seeds.checked}));
    const controls = make("div", {class: "controls"});
    if (panels.length > 1) controls.append(task);
    controls.append(
      choice, make("label", {}, "smoothing ", smooth), make("label", {}, seeds, " seeds"),
      button("all", "All", () => change({shown: new Set(lines().map(line => line.id))})),
      button("leaders", "First " + LEADERS, () => change({shown: null})),
      button("none", "None", () => change({shown: new Set()})), reset,
      button("save", "Save as SVG", () => save("learning.svg", "image/svg+xml", svgView())));
    controls.querySelector("[name=leaders]").hidden = panels.every(one => one.lines.length <= LEADERS);
    const note = make("p", {class: "note"});
    holder.append(controls, make("div", {class: "body"}, make("div", {class: "plot"}, canvas, values), legend), note);

    const toggle = (line, only) => {
      const shown = new Set(lines().filter(isShown).map(one => one.id));
      if (only) return change({shown: new Set([line.id])});
      if (!shown.delete(line.id)) shown.add(line.id);
      change({shown});
    };
    const swatch = line => {
      const picture = make("svg", {class: "swatch hue" + line.hue, viewBox: "0 0 30 10", "aria-hidden": "true"});
      picture.append(make("line", {x1: 0, x2: 30, y1: 5, y2: 5, stroke: "currentColor", "stroke-width": 2.5, "stroke-dasharray": dashOf(line).join(" ")}));
      return picture;
    };
    const fillLegend = () => {
      legend.replaceChildren(...lines().map((line, place) => {
        const last = line.value[line.value.length - 1];
        const one = make("button", {type: "button", value: line.id, "aria-pressed": isShown(line, place), title: "Click: show or hide. With Shift: only this one."},
          swatch(line), make("span", {}, line.name + " ", make("small", {}, "n=" + line.n + (line.unfinished ? ", not finished" : ""))), make("small", {title: line.final ? "final return: interquartile mean over seeds, as on the card" : "last value"}, line.final ?? compact(last)));
        one.addEventListener("click", event => toggle(line, event.shiftKey));
        return make("li", {}, one);
      }));
    };

    // Drawing

    const PAD = {left: 58, right: 14, top: 12, bottom: 40};
    let scale = null;
    const range = (drawn) => {
      let [left, right] = state.zoom ?? [0, Math.max(...drawn.map(one => one.xs[one.xs.length - 1]), 0)];
      if (!(right > left)) right = left + 1;
      let low = Infinity, high = -Infinity;
      for (const {xs, parts} of drawn)
        for (const part of parts) for (let at = 0; at < xs.length; at++) {
          if (xs[at] < left && !(xs[at + 1] > left) || xs[at] > right && !(xs[at - 1] < right)) continue;
          if (part[at] < low) low = part[at];
          if (part[at] > high) high = part[at];
        }
      if (!(high >= low)) [low, high] = [0, 1];
      const margin = 0.05 * (high - low) || 1;
      return {left, right, low: low - margin, high: high + margin};
    };
    const strokes = () => visible().map(line => {
      const xs = along(line, line, state.x), weight = state.smooth;
      const band = line.low && line.high ? [smoothed(line.low, weight), smoothed(line.high, weight)] : [];
      const own = withSeeds(line) ? line.seeds.map(seed => ({xs: along(line, seed, state.x), ys: smoothed(seed.value, weight), name: seed.name})) : [];
      return {line, xs, ys: smoothed(line.value, weight), band, own};
    });
    let drawn = [];
    const render = (pen, width, height, colour) => {
      drawn = strokes();
      const extent = range(drawn.flatMap(one => [
        {xs: one.xs, parts: [one.ys, ...one.band]}, ...one.own.map(seed => ({xs: seed.xs, parts: [seed.ys]}))]));
      const inner = {width: width - PAD.left - PAD.right, height: height - PAD.top - PAD.bottom};
      scale = {
        ...extent, inner,
        x: value => PAD.left + (value - extent.left) / (extent.right - extent.left) * inner.width,
        y: value => PAD.top + (extent.high - value) / (extent.high - extent.low) * inner.height,
        back: x => extent.left + (x - PAD.left) / inner.width * (extent.right - extent.left),
      };
      drawAxes(pen, width, height, colour);
      pen.save();
      pen.beginPath();
      pen.rect(PAD.left, PAD.top, inner.width, inner.height);
      pen.clip();
      for (const one of drawn) drawLine(pen, one, colour("c" + one.line.hue));
      if (drag && drag.now !== null) {
        pen.globalAlpha = 0.2;
        pen.fillStyle = colour("link");
        pen.fillRect(Math.min(drag.from, drag.now), PAD.top, Math.abs(drag.now - drag.from), inner.height);
        pen.globalAlpha = 1;
      }
      pen.restore();
    };
    const draw = () => {
      frame = null;
      const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
      if (!width) return;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
      const colour = name => style.getPropertyValue("--" + name).trim();
      pen.scale(ratio, ratio);
      pen.font = "12px " + getComputedStyle(document.body).fontFamily;
      render(pen, width, height, colour);
      if (cursor !== null && cursor >= scale.left && cursor <= scale.right) drawCursor(pen, colour);
      else values.hidden = true;
    };
    const drawAxes = (pen, width, height, colour) => {
      pen.strokeStyle = colour("line");
      pen.fillStyle = colour("soft");
      pen.lineWidth = 1;
      const axis = AXES[state.x], bottom = height - PAD.bottom;
      pen.textAlign = "center";
      pen.textBaseline = "top";
      for (const value of ticks(scale.left, scale.right, Math.max(2, scale.inner.width / 90))) {
        const x = Math.round(scale.x(value)) + 0.5;
        pen.beginPath(); pen.moveTo(x, PAD.top); pen.lineTo(x, bottom); pen.stroke();
        pen.fillText(axis.show(value), Math.min(x, width - 22), bottom + 5);
      }
      pen.fillText(axis.title, PAD.left + scale.inner.width / 2, bottom + 22);
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const value of ticks(scale.low, scale.high, 6)) {
        const y = Math.round(scale.y(value)) + 0.5;
        pen.beginPath(); pen.moveTo(PAD.left, y); pen.lineTo(width - PAD.right, y); pen.stroke();
        pen.fillText(compact(value), PAD.left - 6, y);
      }
    };
    const path = (pen, xs, ys) => {
      pen.beginPath();
      let open = false;
      xs.forEach((x, at) => {
        if (!Number.isFinite(ys[at]) || !Number.isFinite(x)) { open = false; return; }
        if (open) pen.lineTo(scale.x(x), scale.y(ys[at])); else pen.moveTo(scale.x(x), scale.y(ys[at]));
        open = true;
      });
    };
    const drawLine = (pen, {line, xs, ys, band, own}, colour) => {
      pen.strokeStyle = pen.fillStyle = colour;
      if (band.length && !own.length) {
        const back = [...xs].reverse();
        path(pen, [...xs, ...back], [...band[1], ...[...band[0]].reverse()]);
        pen.globalAlpha = 0.15;
        pen.fill();
      }
      pen.setLineDash([]);
      pen.globalAlpha = 0.4;
      pen.lineWidth = 1;
      for (const seed of own) { path(pen, seed.xs, seed.ys); pen.stroke(); }
      pen.globalAlpha = 1;
      pen.lineWidth = own.length ? 2.6 : 2;
      pen.setLineDash(dashOf(line));
      path(pen, xs, ys);
      pen.stroke();
      if (xs.length === 1) { pen.beginPath(); pen.arc(scale.x(xs[0]), scale.y(ys[0]), 3.5, 0, 7); pen.fill(); }
      pen.setLineDash([]);
    };
    const drawCursor = (pen, colour) => {
      const found = drawn.map(one => ({one, place: placeAt(one.xs, cursor)})).filter(({place}) => place >= 0)
        .sort((a, b) => b.one.ys[b.place] - a.one.ys[a.place]);
      // The values are those of the last points up to the pointer; so is what stands above them.
      const last = found.length ? Math.max(...found.map(({one, place}) => one.xs[place])) : cursor;
      const at = scale.x(Math.max(last, scale.left));
      pen.strokeStyle = colour("soft");
      pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(at, PAD.top); pen.lineTo(at, PAD.top + scale.inner.height); pen.stroke();
      for (const {one, place} of found) {
        pen.fillStyle = colour("c" + one.line.hue);
        pen.beginPath(); pen.arc(scale.x(one.xs[place]), scale.y(one.ys[place]), 3.5, 0, 7); pen.fill();
      }
      const rows = found.slice(0, 12).map(({one, place}) => {
        const band = one.band.length ? " [" + compact(one.band[0][place]) + ", " + compact(one.band[1][place]) + "]" : "";
        return make("tr", {}, make("td", {}, swatch(one.line)), make("td", {}, one.line.name), make("td", {class: "number"}, compact(one.ys[place]) + band));
      });
      const more = found.length > 12 ? [make("tr", {}, make("td", {}), make("td", {}, "and " + (found.length - 12) + " more"))] : [];
      values.replaceChildren(make("b", {}, AXES[state.x].show(last)), make("table", {}, make("tbody", {}, ...rows, ...more)));
      values.hidden = false;
      const right = at > canvas.clientWidth / 2;
      values.style.left = right ? "auto" : at + 12 + "px";
      values.style.right = right ? canvas.clientWidth - at + 12 + "px" : "auto";
    };
    // The present view with its legend, for a paper or a slide.
    const svgView = () => inLight(colour => {
      const width = canvas.clientWidth, height = canvas.clientHeight, row = 18, shown = visible();
      const words = [...panel().task ? [panel().task + ":"] : [], ...note.textContent.replace(" Drag to zoom.", "").split(" ")];
      const told = [""], most = (width - PAD.left - PAD.right) / 6.6;
      for (const word of words)
        if ((told.at(-1) + " " + word).length > most) told.push(word); else told.push((told.pop() + " " + word).trim());
      const head = row * told.length + 8, pen = svgPen(width, height + head + row * shown.length, getComputedStyle(document.body).fontFamily);
      pen.fillStyle = colour("paper");
      pen.beginPath(); pen.rect(0, 0, width, height + head + row * shown.length); pen.fill();
      render(pen, width, height, colour);
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.fillStyle = colour("ink");
      told.forEach((line, at) => pen.fillText(line, PAD.left, height + row * (at + 0.5)));
      shown.forEach((line, at) => {
        const y = height + head + row * (at + 0.5);
        pen.strokeStyle = colour("c" + line.hue);
        pen.lineWidth = 2;
        pen.setLineDash(dashOf(line));
        pen.beginPath(); pen.moveTo(PAD.left, y); pen.lineTo(PAD.left + 34, y); pen.stroke();
        pen.setLineDash([]);
        pen.fillText(line.name + " (n=" + line.n + (line.unfinished ? ", not finished" : "") + ")", PAD.left + 42, y);
      });
      return pen.done();
    });
    const later = () => { frame ??= requestAnimationFrame(draw); };

    // What the reader does

    const show = () => {
      task.value = state.panel;
      smooth.value = state.smooth;
      seeds.checked = state.seeds ?? lines().every(isFew);
      reset.hidden = !state.zoom;
      const priced = lines().some(line => line.price !== null);
      if (state.x === "dollars" && !priced) state.x = "frames";
      for (const one of choice.children) {
        one.setAttribute("aria-pressed", one.value === state.x);
        if (one.value === "dollars") one.hidden = !priced;
      }
      fillLegend();
      canvas.setAttribute("aria-label", "Learning curves" + (panel().task ? " on " + panel().task : "") + ": " + panel().metric + " by " + AXES[state.x].title
        + ". Arrow keys move along it, plus and minus zoom, Escape shows all.");
      note.textContent = panel().metric + ": interquartile mean over seeds"
        + (state.seeds ? ", and single seeds (30 of a line at most)."
          : state.seeds === null && lines().some(isFew) ? ", with its 95 % interval, or below four seeds the single seeds."
          : ", with its 95 % interval where there is one.")
        + (state.smooth ? " Smoothed: an exponential mean of weight " + state.smooth + " over the points." : "")
        + (state.x === "frames" ? "" : state.x === "time" ? " The time is the median over seeds." : " Dollars: wall time, by the price of an hour.")
        + " Drag to zoom.";
      later();
    };
    const change = (next, remember = true) => {
      if ("panel" in next && next.panel !== state.panel) { cursor = null; next.shown ??= null; }
      if ("x" in next) cursor = null;
      state = {...state, ...next};
      show();
      if (remember) history.replaceState(null, "", address(state, panels, section));
    };
    const zoomTo = (low, high) => change({zoom: [Math.min(low, high), Math.max(low, high)]});
    const within = event => Math.max(PAD.left, Math.min(canvas.clientWidth - PAD.right, event.clientX - canvas.getBoundingClientRect().left));
    canvas.addEventListener("pointerdown", event => {
      if (event.button) return;
      drag = {from: within(event), now: null};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", event => {
      if (!scale) return;
      cursor = scale.back(within(event));
      if (drag && Math.abs(within(event) - drag.from) > 6) drag.now = within(event);
      later();
    });
    const release = () => {
      const done = drag;
      drag = null;
      if (done && done.now !== null) zoomTo(scale.back(done.from), scale.back(done.now));
      later();
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", () => { drag = null; later(); });
    canvas.addEventListener("pointerleave", event => { if (event.pointerType === "mouse" && !drag) { cursor = null; later(); } });
    canvas.addEventListener("dblclick", () => change({zoom: null}));
    canvas.addEventListener("keydown", event => {
      if (!scale) return;
      const width = scale.right - scale.left, middle = cursor ?? (scale.left + scale.right) / 2;
      const acts = {
        ArrowLeft: () => { cursor = Math.max(scale.left, middle - width / 50); later(); },
        ArrowRight: () => { cursor = Math.min(scale.right, middle + width / 50); later(); },
        "+": () => zoomTo(middle - width / 4, middle + width / 4),
        "-": () => zoomTo(Math.max(0, middle - width), middle + width),
        Escape: () => { cursor = null; change({zoom: null}); },
      };
      if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
    });
    const arrive = () => {
      const found = parse(panels, section);
      if (!found) return;
      change(found, false);
      holder.closest("section").scrollIntoView();
    };
    addEventListener("hashchange", arrive);
    new ResizeObserver(later).observe(canvas);
    new MutationObserver(later).observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
    holder.hidden = false;
    show();
    arrive();
  };

  for (const holder of document.querySelectorAll(".chart"))
    explore(holder, JSON.parse(holder.nextElementSibling.textContent));
})();
