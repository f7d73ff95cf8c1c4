(() => {
  const root = document.documentElement;

  // Light, dark, or as the system says. A page that was opened as a file may not remember anything.
  const memory = {
    get() { try { return localStorage.getItem("orchestrate-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("orchestrate-theme", value); } catch { /* then it is not remembered */ } },
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  let theme = "auto";
  const show = next => {
    theme = ["light", "dark"].includes(next) ? next : "auto";
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = "Theme: " + theme;
  };
  button.addEventListener("click", () => {
    // The first press always changes what is seen.
    const order = system.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    show(order[(order.indexOf(theme) + 1) % 3]);
    memory.set(theme);
  });
  show(memory.get());
  button.hidden = false;

  // Pictures below a chart that shows the same are folded; without this script they stay open.
  for (const one of document.querySelectorAll("details.folded")) one.open = false;

  // What is folded on a screen is open on paper.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of folded) one.open = false; });

  // Tables: what a row holds is read once, when it is first needed.
  const collator = new Intl.Collator(undefined, {numeric: true, sensitivity: "base"});
  const key = cell => {
    if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
    const text = cell.textContent.trim();
    if (text === "" || text === "–") return null;
    const value = cell.classList.contains("number") ? Number(text.replaceAll(",", "")) : NaN;
    return Number.isNaN(value) ? text : value;
  };
  // Numbers, then words, and last what is missing, in either direction.
  const rank = value => value === null ? 2 : typeof value === "number" ? 0 : 1;
  const compare = (a, b, sign) => {
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    if (a === null) return 0;
    return sign * (typeof a === "number" ? a - b : collator.compare(a, b));
  };

  const NEXT = {none: "ascending", ascending: "descending", descending: "none"};
  const sortable = (table, rows) => {
    const heads = [...table.tHead.rows[0].cells];
    const sort = (column, way) => {
      let order = rows;
      if (way !== "none") {
        const sign = way === "ascending" ? 1 : -1;
        const keyed = rows.map(row => [key(row.cells[column]), row]);
        order = keyed.sort((a, b) => compare(a[0], b[0], sign)).map(pair => pair[1]);
      }
      table.tBodies[0].append(...order);
    };
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const way = NEXT[head.getAttribute("aria-sort")];
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", way);
        sort(column, way);
      });
    });
  };

  const FEW = 6;  // these are seen at a glance
  const filterable = (block, name, rows) => {
    if (rows.length < FEW) return;
    const line = document.createElement("div");
    line.className = "filter";
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Filter: all words must match";
    input.setAttribute("aria-label", "Filter " + name + ": all words must match");
    const output = document.createElement("output");
    line.append(input, output);
    block.prepend(line);
    const states = block.querySelector(".states");
    const chips = states ? [...states.querySelectorAll("button")] : [];
    let texts = null;
    const count = shown => output.textContent = (shown === rows.length ? "" : shown + " of ") + rows.length + " rows";
    const apply = () => {
      texts ??= rows.map(row => [...row.cells].map(cell => cell.textContent + " " + cell.title).join(" ").toLowerCase());
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = chips.filter(chip => chip.getAttribute("aria-pressed") === "true").map(chip => chip.value);
      let shown = 0;
      rows.forEach((row, number) => {
        const state = row.querySelector("[data-state]")?.dataset.state;
        const fits = words.every(word => texts[number].includes(word)) && (!chosen.length || chosen.includes(state));
        row.hidden = !fits;
        shown += fits;
      });
      count(shown);
    };
    input.addEventListener("input", apply);
    for (const chip of chips) chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", chip.getAttribute("aria-pressed") !== "true");
      apply();
    });
    if (states) states.hidden = false;
    count(rows.length);
  };

  for (const block of document.querySelectorAll("[data-rows]")) {
    const table = block.querySelector("table"), rows = [...table.tBodies[0].rows];
    if (rows.length < 2) continue;
    sortable(table, rows);
    filterable(block, block.dataset.rows, rows);
  }
})();
