"use strict";
// Elements and panels, for the scripts that follow.

// Namespaces: written out they would look like addresses.
const [SVG, XLINK] = (() => {
  const blank = document.createElement("template");
  blank.innerHTML = '<svg xlink:href=""></svg>';
  const one = blank.content.firstChild;
  return [one.namespaceURI, one.attributes[0].namespaceURI];
})();

const make = (name, attributes = {}, ...inside) => {
  const svg = name === "svg" || name === "line";
  const one = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.append(...inside);
  return one;
};

// A panel below a table: the content of a cell becomes a button that fills and shows it, or hides it again.
const panelBefore = place => {
  const panel = make("div", {class: "detail", role: "region", "aria-live": "polite", hidden: ""});
  place.before(panel);
  let open = null;
  return (cell, fill) => {
    const button = make("button", {type: "button", class: "open", "aria-expanded": "false"}, ...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const same = open === button;
      open?.setAttribute("aria-expanded", "false");
      open = same ? null : button;
      panel.hidden = same;
      if (same) return;
      button.setAttribute("aria-expanded", "true");
      panel.replaceChildren(...fill());
      panel.scrollIntoView({block: "nearest"});
    });
  };
};

// A table of texts; columns are [heading, class].
const tableOf = (columns, rows) => make("div", {class: "wide"}, make("table", {},
  make("thead", {}, make("tr", {}, ...columns.map(([text, kind = ""]) => make("th", {scope: "col", class: kind}, text)))),
  make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map((text, at) => make("td", {class: columns[at][1] ?? ""}, text)))))));
