// A click on a return compares its variant with the others of the task, pair by pair.
(() => {
  const COLUMNS = [["compared with"], ["seeds", "number"], ["P(better)", "number"], ["significant"]];
  const seeds = number => number + (number === 1 ? " seed" : " seeds");
  const against = (task, at) => {
    const found = [];
    for (const [one, other, chance, verdict] of task.pairs) {
      if (one === at) found.push([other, chance, verdict]);
      if (other === at) found.push([one, 1 - chance, verdict]);
    }
    return found.sort((a, b) => a[1] - b[1]);
  };
  const told = (labels, task, at) => {
    const rows = against(task, at).map(([other, chance, verdict]) =>
      [labels[other], String(task.seeds[other]), chance.toFixed(2), verdict]);
    return [
      make("h3", {}, labels[at] + (task.name ? " on " + task.name : "") + ", " + seeds(task.seeds[at])),
      rows.length ? tableOf(COLUMNS, rows)
        : make("p", {class: "note"}, "No other variant of this task is comparable."),
    ];
  };
  for (const source of document.querySelectorAll(".pair-details")) {
    const {labels, tasks} = JSON.parse(source.textContent), table = source.closest("section").querySelector("table");
    const opens = panelBefore(source);
    [...table.tBodies[0].rows].forEach((row, at) => tasks.forEach((task, column) => {
      if (task.seeds[at] !== undefined) opens(row.cells[column + 1], () => told(labels, task, at));
    }));
  }
})();
