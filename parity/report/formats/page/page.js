"use strict";
const MOST = 300;
const data = [...document.querySelectorAll("script.data")];
const rows = [...document.querySelectorAll("#cases tbody tr")];
const at = (id) => document.getElementById(id);
const BAD = new Set(["failed", "vacuous", "error", "open"]);

/* Makes an element; texts are texts, so that nothing in a record is ever markup. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/* --- the matrix --- */
const ids = rows.map((row) => `${row.cells[0].textContent}@${row.cells[1].textContent}`.toLowerCase());
let most = MOST;

function filter() {
  const text = at("by-id").value.trim().toLowerCase();
  const verdict = at("by-verdict").value, mesh = at("by-mesh").value, word = at("by-cell").value;
  let found = 0;
  rows.forEach((row, place) => {
    const fits = ids[place].includes(text) && (!verdict || row.cells[2].textContent === verdict)
      && (!mesh || row.cells[1].textContent === mesh) && (!word || row.dataset.words.split(" ").includes(word));
    found += fits;
    row.hidden = !fits || found > most;
  });
  at("shown").textContent = `${found} of ${rows.length} cases` + (found > most ? `, the first ${most} shown` : "");
  at("all").hidden = found <= most;
}
for (const id of ["by-id", "by-verdict", "by-mesh", "by-cell"]) at(id).addEventListener("input", filter);
at("all").addEventListener("click", () => { most = rows.length; filter(); });
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
filter();

/* --- one case --- */
const number = (value) => value === null || value === undefined ? "unknown" : value.toLocaleString("en");

function sentence(finding) {
  const [ours, theirs] = finding.labels || ["reference", "candidate"];
  return el("li", {}, el("strong", {}, finding.where), el("br"),
    finding.reference ? el("span", {}, `${ours}: `, el("code", {}, finding.reference), el("br")) : null,
    finding.candidate ? el("span", {}, `${theirs}: `, el("code", {}, finding.candidate), el("br")) : null,
    [finding.distance, finding.cause && `likely ${finding.cause}`, finding.next_step].filter(Boolean).join("; "),
    finding.traceback ? el("details", {}, el("summary", {}, "traceback"), el("pre", { tabindex: 0 }, finding.traceback)) : null);
}

function bar(name, share, text, kind) {
  const width = Math.max(0, Math.min(100, share));
  return el("div", {}, el("dt", {}, name), el("dd", {},
    el("span", { class: "track" }, el("span", { class: `bar ${kind}`, style: `width:${width}%` })), text));
}

/* Deviation of each leaf in units of its noise, on a logarithmic scale from 0.01 to the worst. */
function leaves(table) {
  const known = table.map((row) => row.floors).filter((value) => value > 0);
  const top = Math.log10(Math.max(100, ...known)) + 2;
  const bars = table.map((row) => bar(row.leaf,
    row.floors === null ? 100 : 100 * (Math.log10(Math.max(row.floors, 0.01)) + 2) / top,
    row.floors === null ? (row.note || "beyond any noise") : `${row.floors.toPrecision(3)} x noise, ${row.rung}`,
    row.rung === "failed" ? "bad" : "good"));
  return [el("h3", {}, "Deviation of leaves in units of the noise floor, logarithmic"), el("dl", { class: "bars" }, ...bars)];
}

function both(table, title) {
  const bars = table.flatMap((row) => {
    const most = Math.max(row.reference || 0, row.candidate || 0) || 1;
    const count = (side) => side in row ? ` in ${row[side]}` : "";
    return [bar(`${row.quantity}, reference`, 100 * (row.reference || 0) / most, number(row.reference) + count("reference_count"), ""),
      bar(`${row.quantity}, candidate`, 100 * (row.candidate || 0) / most, number(row.candidate) + count("candidate_count"), "two")];
  });
  return [el("h3", {}, title), el("dl", { class: "bars" }, ...bars)];
}

function loops(table) {
  const parts = [];
  for (const stage of new Set(table.map((row) => row.stage))) {
    const sides = ["reference", "candidate"].map((side) => table.filter((row) => row.stage === stage && row.side === side));
    const key = (row) => [row.depth, row.trips, row.carries, row.carry_bytes].join();
    const lists = sides.map((side, place) => {
      const left = sides[1 - place].map(key);
      const items = side.map((row) => {
        const found = left.indexOf(key(row));
        if (found >= 0) left.splice(found, 1);
        return el("li", { class: found < 0 ? "apart" : "", style: `padding-left:${1.2 * row.depth}rem` },
          `${found < 0 ? "≠ " : ""}${number(row.trips)} x, ${row.carries} carries, ${number(row.carry_bytes)} B  ${row.source}`);
      });
      return el("div", {}, el("h4", {}, `${["reference", "candidate"][place]}, ${side.length} loops`), el("ol", {}, ...items));
    });
    parts.push(el("h3", {}, `Loops, ${stage}`), el("div", { class: "sides" }, ...lists));
  }
  return parts;
}

function plain(table, title) {
  const heads = Object.keys(table[0] || {});
  return [el("h3", {}, title), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...table.map((row) => el("tr", {}, ...heads.map((head) => el("td", {}, String(row[head] ?? ""))))))))];
}

const PICTURES = {
  leaves, loops,
  memory: (table) => both(table, "Memory, bytes"),
  collectives: (table) => both(table, "Collectives, bytes moved"),
  map: (table) => plain(table, "Weight map"),
};

function channel(name, one) {
  const findings = (one.findings || []).map(sentence), notes = (one.notes || []).map(sentence);
  const measures = Object.entries(one.measures || {}).map(([key, value]) => `${key} ${number(value)}`).join(", ");
  const pictures = Object.entries(one.tables || {}).filter(([, table]) => table.length)
    .flatMap(([kind, table]) => (PICTURES[kind] || ((rows) => plain(rows, kind)))(table));
  return el("details", BAD.has(one.verdict) ? { open: "" } : {},
    el("summary", {}, `${name} `, el("span", { class: `v ${one.verdict}` }, one.verdict), ` ${one.detail || ""}`),
    findings.length ? el("ul", {}, ...findings) : null,
    notes.length ? el("details", {}, el("summary", {}, `${notes.length} notes`), el("ul", {}, ...notes)) : null,
    measures ? el("p", {}, measures) : null, ...pictures);
}

function open(place) {
  const one = JSON.parse(data[place].textContent);
  at("one-head").textContent = one.id;
  at("one-body").replaceChildren(
    el("p", {}, el("span", { class: `v ${one.verdict}` }, one.verdict), ` ${one.reference} against ${one.candidate} on ${one.backend}`),
    ...Object.entries(one.channels).map(([name, result]) => channel(name, result)));
  at("one").showModal();
  at("one").scrollTop = 0;
  at("one-head").focus();
}
document.querySelector("#cases tbody").addEventListener("click", (event) => {
  if (event.target.tagName === "BUTTON") open(rows.indexOf(event.target.closest("tr")));
});
at("close").addEventListener("click", () => at("one").close());
