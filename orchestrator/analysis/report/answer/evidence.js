// A click on a return compares its variant with the others of the task, pair by pair.
(() => {
  "use strict";
  const make = (name, attributes, ...inside) => {
    const one = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    one.append(...inside);
    return one;
  };
  for (const source of document.querySelectorAll(".pair-details")) {
    const told = JSON.parse(source.textContent), table = source.closest("section").querySelector("table");
    const panel = make("div", {class: "detail", role: "region", "aria-live": "polite", hidden: ""});
    source.before(panel);
    let open = null;
    const against = (task, at) => {
      const found = [];
      for (const [one, other, chance, verdict] of task.pairs) {
        if (one === at) found.push([other, chance, verdict]);
        if (other === at) found.push([one, 1 - chance, verdict]);
      }
      return found.sort((a, b) => a[1] - b[1]);
    };
    const show = (task, at) => {
      const name = told.labels[at], found = against(task, at);
      const heads = [["compared with"], ["seeds", "number"], ["P(returns more)", "number"], ["more than luck"]]
        .map(([text, kind = ""]) => make("th", {scope: "col", class: kind}, text));
      const rows = found.map(([other, chance, verdict]) => make("tr", {},
        make("td", {}, told.labels[other]), make("td", {class: "number"}, String(task.seeds[other])),
        make("td", {class: "number"}, chance.toFixed(2)), make("td", {}, verdict)));
      panel.replaceChildren(
        make("h3", {}, name + (task.name ? " on " + task.name : "") + `, ${task.seeds[at]} ${task.seeds[at] === 1 ? "seed" : "seeds"}`),
        rows.length ? make("div", {class: "wide"}, make("table", {},
          make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)))
          : make("p", {class: "note"}, "No other variant has comparable returns in this task."));
      panel.hidden = false;
      panel.scrollIntoView({block: "nearest"});
    };
    [...table.tBodies[0].rows].forEach((row, at) => told.tasks.forEach((task, column) => {
      if (task.seeds[at] === undefined) return;
      const cell = row.cells[column + 1];
      const button = make("button", {type: "button", class: "open", "aria-expanded": "false"}, ...cell.childNodes);
      cell.append(button);
      button.addEventListener("click", () => {
        const same = open === button;
        open?.setAttribute("aria-expanded", "false");
        open = same ? null : button;
        if (same) { panel.hidden = true; return; }
        button.setAttribute("aria-expanded", "true");
        show(task, at);
      });
    }));
  }
})();
