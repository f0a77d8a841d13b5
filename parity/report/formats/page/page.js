const MOST = 300;
const data = [...document.querySelectorAll("script.data")];
const GRIDS = JSON.parse(document.getElementById("grids").textContent);
const record = (place) => JSON.parse(data[place].textContent);
const rows = [...document.querySelectorAll("#cases tbody tr")];
const at = (id) => document.getElementById(id);
const BAD = new Set(["failed", "vacuous", "error", "open"]);

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
function sentence(finding) {
  const labels = finding.labels || ["reference", "candidate"];
  const sides = [finding.reference, finding.candidate].map((text, at) => text ? el("span", { class: "side" }, `${labels[at]}: `, el("code", {}, text)) : null);
  return el("li", {}, el("strong", {}, `${(finding.doubts || []).includes("place") ? "not sure, " : ""}${finding.where}`), el("span", {}, ...sides.filter(Boolean)),
    el("span", {}, [finding.distance, finding.cause && `likely ${finding.cause}`, finding.next_step].filter(Boolean).join("; ")),
    finding.traceback ? el("details", {}, el("summary", {}, "traceback"), el("pre", { tabindex: 0 }, finding.traceback)) : null);
}

function pictures(one, result) {
  const order = (kind) => (FIRST.indexOf(kind) + FIRST.length + 1) % (FIRST.length + 1);
  return Object.entries(result.tables || {}).filter(([, table]) => table.length).sort(([a], [b]) => order(a) - order(b))
    .flatMap(([kind, table]) => Object.hasOwn(PICTURES, kind) ? PICTURES[kind](table, one) : plain(table, kind));
}

function channel(one, name, result) {
  const findings = (result.findings || []).map(sentence), notes = [result.located || [], result.notes || []].flat().map(sentence);
  const measures = Object.entries(result.measures || {}).map(([key, value]) => `${key} ${number(value)}`).join(", ");
  return el("details", BAD.has(result.verdict) ? { open: "" } : {},
    el("summary", {}, `${name} `, el("span", { class: `v ${result.verdict}` }, result.verdict), ` ${result.detail || ""}`),
    ...(findings.length ? folded("ul", { class: "found" }, findings, 5) : []),
    notes.length ? el("details", {}, el("summary", {}, `${notes.length} ${notes.length === 1 ? "note" : "notes"}`), el("ul", { class: "found" }, ...notes)) : null,
    measures ? el("p", {}, measures) : null, ...pictures(one, result));
}

/* What `parity run --bisect` found: a sentence, and a table or a picture an axis. */
function followed(found) {
  if (!found) return [];
  return [el("section", { class: "cause" }, el("h3", {}, "Followed to its cause"), el("p", {}, found.sentence),
    ...found.axes.flatMap((axis) => [el("p", {}, el("strong", {}, `${axis.axis}: `), axis.sentence),
      ...(axis.facts.modules && axis.facts.modules.length ? [modules(axis.facts.modules)] : []),
      ...(axis.rows.length ? [el("details", {}, el("summary", {}, `${axis.axis} as a table`), grid(axis.head, axis.rows, axis.axis))] : [])]))];
}

function open(place) {
  const one = record(place);
  at("one-head").textContent = one.id;
  at("one-body").replaceChildren(
    el("p", {}, el("span", { class: `v ${one.verdict}` }, one.verdict), ` ${one.reference} against ${one.candidate} on ${one.backend}`),
    ...followed(one.bisect),
    ...Object.entries(one.channels).map(([name, result]) => channel(one, name, result)));
  at("one").showModal();
  at("one").scrollTop = 0;
  at("one-head").focus();
}
document.querySelector("#cases tbody").addEventListener("click", (event) => {
  if (event.target.tagName === "BUTTON") open(rows.indexOf(event.target.closest("tr")));
});
at("close").addEventListener("click", () => at("one").close());

/* --- pictures beside the findings, drawn where they are first seen --- */
function beside(place) {
  const one = record(place);
  const found = one.bisect && one.bisect.axes.map((axis) => axis.facts.modules).find((rows) => rows && rows.length);
  if (found) return [modules(found)];
  for (const name of ["gradients", "state", "values"]) {
    const table = one.channels[name] && BAD.has(one.channels[name].verdict) && (one.channels[name].tables || {}).layers;
    if (table && table.length) return layers(table);
  }
  return [];
}
for (const card of document.querySelectorAll("details.case")) {
  const box = card.querySelector(".drawn");
  const fill = () => { if (card.open && !box.hasChildNodes()) box.append(...beside(Number(box.dataset.case))); };
  card.addEventListener("toggle", fill);
  fill();
  card.querySelector("button.whole").addEventListener("click", () => open(Number(box.dataset.case)));
}
