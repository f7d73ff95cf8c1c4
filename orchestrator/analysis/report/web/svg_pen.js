// What the chart draws with on a canvas, as SVG: those methods that it uses, and no others.
const svgPen = (width, height, font) => {
  const parts = [], stack = [];
  let state = {strokeStyle: "#000", fillStyle: "#000", lineWidth: 1, globalAlpha: 1, textAlign: "left", textBaseline: "alphabetic", dash: [], clip: ""};
  let steps = "", clips = 0;
  const tenth = value => String(Math.round(10 * value) / 10);
  const escape = text => text.replace(/[&<>"]/g, letter => "&#" + letter.charCodeAt(0) + ";");
  const put = (name, attributes, text) => {
    const told = Object.entries(attributes).filter(([, value]) => value !== "").map(([key, value]) => " " + key + '="' + escape(String(value)) + '"').join("");
    parts.push("<" + name + told + (text === undefined ? "/>" : ">" + escape(text) + "</" + name + ">"));
  };
  const look = () => ({opacity: state.globalAlpha === 1 ? "" : state.globalAlpha, "clip-path": state.clip});
  const pen = {
    save: () => stack.push({...state}),
    restore: () => { state = stack.pop(); },
    beginPath: () => { steps = ""; },
    moveTo: (x, y) => { steps += "M" + tenth(x) + " " + tenth(y); },
    lineTo: (x, y) => { steps += "L" + tenth(x) + " " + tenth(y); },
    rect: (x, y, wide, high) => { steps += "M" + [x, y].map(tenth).join(" ") + "h" + tenth(wide) + "v" + tenth(high) + "h" + tenth(-wide) + "z"; },
    arc: (x, y, radius) => { steps += "M" + tenth(x - radius) + " " + tenth(y) + ("a" + [radius, radius, 0, 1, 0].join(" ") + " ") + tenth(2 * radius) + " 0" + "a" + [radius, radius, 0, 1, 0].join(" ") + " " + tenth(-2 * radius) + " 0z"; },
    clip: () => {
      const id = "inside" + ++clips;
      parts.push('<clipPath id="' + id + '"><path d="' + steps + '"/></clipPath>');
      state.clip = "url(#" + id + ")";
    },
    setLineDash: dash => { state.dash = dash; },
    stroke: () => put("path", {d: steps, fill: "none", stroke: state.strokeStyle, "stroke-width": state.lineWidth, "stroke-dasharray": state.dash.join(" "), ...look()}),
    fill: () => put("path", {d: steps, fill: state.fillStyle, ...look()}),
    fillText: (text, x, y) => {
      const anchor = {center: "middle", right: "end"}[state.textAlign] ?? "", down = {top: 10, middle: 4}[state.textBaseline] ?? 0;
      put("text", {x: tenth(x), y: tenth(y + down), fill: state.fillStyle, "text-anchor": anchor}, text);
    },
    done: () => '<svg xmlns="' + SVG + '" width="' + width + '" height="' + height + '" viewBox="0 0 ' + width + " " + height
      + '" font-family="' + escape(font) + '" font-size="12">' + parts.join("\n") + "</svg>\n",
  };
  for (const name of ["strokeStyle", "fillStyle", "lineWidth", "globalAlpha", "textAlign", "textBaseline"])
    Object.defineProperty(pen, name, {set: value => { state[name] = value; }});
  return pen;
};
