// Files made of the page itself, so that they are there when it was sent alone. Only PDF and the rows that are
// left out lie beside it. CSV and LaTeX are as export.py writes them.

const save = (name, kind, text) => {
  const link = make("a", {href: URL.createObjectURL(new Blob([text], {type: kind})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};

// Files are for white paper: read the light theme's colours, whichever is shown.
const inLight = read => {
  const root = document.documentElement, before = root.dataset.theme;
  root.dataset.theme = "light";
  try {
    const style = getComputedStyle(root);
    return read(name => style.getPropertyValue("--" + name).trim());
  } finally {
    if (before === undefined) delete root.dataset.theme; else root.dataset.theme = before;
  }
};

const svgFile = svg => inLight(colour => {
  const whole = svg.cloneNode(true), [, , width, height] = whole.getAttribute("viewBox").split(" ");
  whole.setAttribute("width", width + "pt");
  whole.setAttribute("height", height + "pt");
  for (const one of whole.querySelectorAll("*")) for (const {name, value} of [...one.attributes]) {
    if (value.includes("var(")) one.setAttribute(name, value.replace(/var\(--([\w-]+)\)/g, (_, key) => colour(key)));
    if (name === "href") one.setAttributeNS(XLINK, "xlink:href", value);  // what older programs read
  }
  return '<?xml version="1.0" encoding="utf-8"?>\n' + new XMLSerializer().serializeToString(whole) + "\n";
});

(() => {
  const NUMBER = /^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|nan)$/i, FORMULA = /^'*[=+\-@\t\r]/;
  const MISSING = "–";
  const LATEX = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "–": "--",
    "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}",
    ...Object.fromEntries([..."&%$#_{}"].map(letter => [letter, "\\" + letter])),
  };

  const content = table => {
    const heads = [...table.tHead?.rows[0].cells ?? []], rows = [...table.tBodies[0].rows].filter(row => !row.hidden);
    return {
      heads: heads.map(head => head.textContent),
      numeric: heads.map(head => head.classList.contains("number")),
      rows: rows.map(row => [...row.cells]),
    };
  };
  const escaped = text => FORMULA.test(text) && !NUMBER.test(text) ? "'" + text : text;
  const quoted = text => /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  const columnsOf = (cell, numeric, span) => {
    const text = cell.textContent, plain = text.replaceAll(",", ""), sort = cell.dataset.sort;
    if (span) return [text === MISSING ? "" : sort ?? (NUMBER.test(plain) ? plain : text), ...(cell.dataset.ends ?? " ").split(" ")].map(infinite);
    if (NUMBER.test(plain) && (sort !== undefined || numeric)) return [sort ?? plain];
    return [numeric && text === MISSING ? "" : escaped(text)];
  };
  const infinite = text => text.replace(/^(-?)inf$/, "$1Infinity");
  const csv = table => {
    const {heads, numeric, rows} = content(table), width = Math.max(heads.length, ...rows.map(row => row.length));
    const spans = Array.from({length: width}, (_, at) => rows.some(row => row[at]?.dataset.ends));
    const names = heads.flatMap((head, at) => {
      const name = escaped(spans[at] ? head.replace(/ \[95 %\]$/, "") : head);
      return spans[at] ? [name, name + "_low", name + "_high"] : [name];
    });
    const told = rows.map(row => row.flatMap((cell, at) => columnsOf(cell, numeric[at] ?? false, spans[at])));
    return [...(heads.length ? [names] : []), ...told].map(row => row.map(quoted).join(",") + "\n").join("");
  };

  const texRow = texts => {
    const told = texts.map(text => [...text.trim().split(/\s+/).join(" ")].map(letter => LATEX[letter] ?? letter).join("")).join(" & ");
    return (/^[[*]/.test(told) ? "{}" : "") + told + " \\\\";
  };
  const latex = table => {
    const {heads, numeric, rows} = content(table), width = heads.length || Math.max(1, ...rows.map(row => row.length));
    const sides = Array.from({length: width}, (_, at) => numeric[at] ? "r" : "l").join("");
    return [
      "\\begin{tabular}{" + sides + "}", "\\toprule", ...(heads.length ? [texRow(heads), "\\midrule"] : []),
      ...rows.map(row => texRow(row.map(cell => cell.textContent))), "\\bottomrule", "\\end{tabular}", "",
    ].join("\n");
  };

  const MAKE = {
    svg: ["image/svg+xml", link => svgFile(link.closest("figure").querySelector("svg"))],
    csv: ["text/csv", link => csv(link.closest(".table").querySelector("table"))],
    tex: ["application/x-tex", link => latex(link.closest(".table").querySelector("table"))],
  };
  document.addEventListener("click", event => {
    const link = event.target.closest?.(".files a"), name = link?.getAttribute("href");
    const [kind, written] = MAKE[name?.split(".").pop()] ?? [];
    if (!kind) return;
    event.preventDefault();
    save(name, kind, written(link));
  });
})();
