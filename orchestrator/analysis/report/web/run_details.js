// A click on a run's name shows what differs in its configuration, the end of its log and commands.
(() => {
  const differing = one => {
    const note = text => make("p", {class: "note"}, text);
    const known = one.differs.length ? [tableOf([["key"], ["this run"], ["most runs"]], one.differs)] : [];
    if (one.composed) return known.length ? known : [note("Its configuration is that of most runs.")];
    return [note("There is no result with its composed configuration: "
      + (known.length ? "these keys of the grid differ." : "its keys of the grid, but for the seed, are those of most runs.")), ...known];
  };
  const told = one => one.left_out ? [
    make("h3", {}, "Run " + one.name),
    make("p", {class: "note"}, "There is no room here for what differs in this run: results.csv, beside the report's folder, has its keys."),
    make("pre", {}, "orchestrate logs " + one.name),
  ] : [
    make("h3", {}, "Run " + one.name),
    make("p", {}, "To train it once more, beside the sweep, and to read its whole log:"),
    make("pre", {}, (one.again && one.again + "\n") + "orchestrate logs " + one.name),
    ...differing(one),
    ...(one.log ? [make("p", {}, "The end of its log:"), make("pre", {class: "log"}, one.log)] : []),
  ];
  for (const source of document.querySelectorAll(".run-details")) {
    const runs = JSON.parse(source.textContent), table = source.closest("section").querySelector("table");
    const opens = panelBefore(source);
    [...table.tBodies[0].rows].forEach((row, at) => opens(row.cells[0], () => told(runs[at])));
  }
})();
