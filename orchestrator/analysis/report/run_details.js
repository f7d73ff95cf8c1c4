// A click on a run's name shows what differs in its configuration, the end of its log and commands.
(() => {
  "use strict";
  const make = (name, attributes, ...inside) => {
    const one = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    one.append(...inside);
    return one;
  };
  for (const source of document.querySelectorAll(".run-details")) {
    const told = JSON.parse(source.textContent), table = source.closest("section").querySelector("table");
    const panel = make("div", {class: "detail", role: "region", "aria-live": "polite", hidden: ""});
    source.before(panel);
    let open = null;
    const show = one => {
      const differs = one.differs.map(([key, value, most]) => make("tr", {}, make("td", {}, key), make("td", {}, value), make("td", {}, most)));
      const head = make("tr", {}, ...["key", "this run", "most runs"].map(text => make("th", {scope: "col"}, text)));
      panel.replaceChildren(
        make("h3", {}, "Run " + one.name),
        make("p", {}, "To train it once more, beside the sweep, and to read its whole log:"),
        make("pre", {}, (one.again && one.again + "\n") + "orchestrate logs " + one.name),
        differs.length ? make("div", {class: "wide"}, make("table", {}, make("thead", {}, head), make("tbody", {}, ...differs)))
          : make("p", {class: "note"}, "Its configuration is that of most runs, or it has no result yet."),
        ...(one.log ? [make("p", {}, "The end of its log:"), make("pre", {class: "log"}, one.log)] : []));
      panel.hidden = false;
      panel.scrollIntoView({block: "nearest"});
    };
    [...table.tBodies[0].rows].forEach((row, at) => {
      const button = make("button", {type: "button", class: "open", "aria-expanded": "false"}, ...row.cells[0].childNodes);
      row.cells[0].append(button);
      button.addEventListener("click", () => {
        const same = open === button;
        open?.setAttribute("aria-expanded", "false");
        open = same ? null : button;
        if (same) { panel.hidden = true; return; }
        button.setAttribute("aria-expanded", "true");
        show(told[at]);
      });
    });
  }
})();
