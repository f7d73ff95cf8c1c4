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
      units: heads.map(head => head.dataset.unit),
      numeric: heads.map(head => head.classList.contains("number")),
      rows: rows.map(row => [...row.cells]),
    };
  };
  const escaped = text => FORMULA.test(text) && !NUMBER.test(text) ? "'" + text : text;
  const quoted = text => /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  // What a cell says, by what the name of its column ends with.
  const factsOf = (cell, numeric) => {
    const text = cell.textContent, plain = text.replaceAll(",", ""), {sort, ends, more} = cell.dataset;
    const isNumber = NUMBER.test(plain), known = numeric ? sort !== undefined || isNumber : sort !== undefined && isNumber;
    const facts = {"": known ? sort ?? plain : text === MISSING ? "" : escaped(text)};
    if (ends) [facts.low, facts.high] = ends.split(" ").map(end => end.replace(/^(-?)inf$/, "$1Infinity"));
    const {bound, ...others} = Object.fromEntries((more ? more.split(";") : []).map(one => one.split(":")));
    if (bound !== undefined) for (const suffix of Object.keys(facts)) if (facts[suffix] === "Infinity") {
      facts[suffix] = bound;
      facts[suffix ? suffix + "_sign" : "sign"] = ">";
    }
    return {...facts, ...others};
  };
  const ORDER = ["", "sign", "low", "low_sign", "high", "high_sign"];
  const csv = table => {
    const {heads, units, numeric, rows} = content(table), width = Math.max(heads.length, ...rows.map(row => row.length));
    const facts = rows.map(row => row.map((cell, at) => factsOf(cell, numeric[at] ?? false)));
    const suffixes = Array.from({length: width}, (_, at) => {
      const used = new Set([...facts.flatMap(row => Object.keys(row[at] ?? {})), ""]);
      return [...ORDER.filter(one => used.has(one)), ...[...used].filter(one => !ORDER.includes(one))];
    });
    const names = heads.flatMap((head, at) => {
      const bare = suffixes[at].includes("low") ? head.replace(/ \[\d+ %\]$/, "") : head;
      const name = escaped(units[at] ? bare + " (" + units[at] + ")" : bare);
      return suffixes[at].map(suffix => suffix ? name + "_" + suffix : name);
    });
    const told = facts.map(row => row.flatMap((one, at) => suffixes[at].map(suffix => one[suffix] ?? "")));
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
