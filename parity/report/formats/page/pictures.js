"use strict";
/* Makes an element; texts are texts, so that nothing in a record is ever markup. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function draw(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const number = (value) => value === null || value === undefined ? "unknown" : value.toLocaleString("en");
const times = (value) => value === null ? "beyond any noise" : `${value < 1e4 ? +value.toPrecision(3) : value.toExponential(1)} x noise`;
const short = (text, most) => text.length > most ? `…${text.slice(1 - most)}` : text;

/* A list whose tail is folded away. */
function folded(tag, attributes, items, most) {
  if (items.length <= most + 3) return [el(tag, attributes, ...items)];
  return [el(tag, attributes, ...items.slice(0, most)),
    el("details", {}, el("summary", {}, `and ${items.length - most} more`), el(tag, attributes, ...items.slice(most)))];
}

/* One bar; without a share there is no bar at all: what is unknown is not nothing. */
function bar(name, share, text, kind) {
  const track = share === null ? el("span", { class: "track none" })
    : el("span", { class: "track" }, el("span", { class: `bar ${kind}`, style: `width:${Math.max(0, Math.min(100, share))}%` }));
  return el("div", {}, el("dt", {}, name), el("dd", {}, track, el("span", {}, text)));
}

/* Deviation of each leaf in units of its noise, on a logarithmic scale from 0.01 to the worst. */
function leaves(table) {
  const known = table.map((row) => row.floors).filter((value) => value > 0);
  const top = Math.log10(Math.max(100, ...known)) + 2;
  const bars = table.map((row) => bar(row.leaf,
    row.floors === null ? 100 : 100 * (Math.log10(Math.max(row.floors, 0.01)) + 2) / top,
    row.floors === null ? (row.note || "beyond any noise") : `${times(row.floors)}, ${row.rung}`,
    row.rung === "failed" ? "bad" : "good"));
  return [el("h3", {}, "Leaves that differ, in units of their noise, logarithmic"), ...folded("dl", { class: "bars" }, bars, 12)];
}

function both(table, title) {
  const bars = table.flatMap((row) => {
    const most = Math.max(row.reference || 0, row.candidate || 0) || 1;
    const one = (side, kind) => bar(`${row.quantity}, ${side}`, typeof row[side] === "number" ? 100 * row[side] / most : null,
      number(row[side]) + (`${side}_count` in row ? ` in ${row[`${side}_count`]}` : ""), kind);
    return [one("reference", ""), one("candidate", "two")];
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
          `${found < 0 ? "≠ " : ""}${row.trips === null ? "unknown trips" : `${number(row.trips)} x`}, ${row.carries} carries, ${number(row.carry_bytes)} B  ${row.source}`);
      });
      return el("div", {}, el("h4", {}, `${["reference", "candidate"][place]}, ${side.length} loops`), el("ol", {}, ...items));
    });
    parts.push(el("h3", {}, `Loops, ${stage}`), el("div", { class: "sides" }, ...lists));
  }
  return parts;
}

function grid(heads, lines, title) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...lines.map((line) => el("tr", {}, ...line.map((text) => el("td", {}, String(text ?? ""))))))));
}

function plain(table, title) {
  const heads = Object.keys(table[0] || {});
  return [el("h3", {}, title), grid(heads, table.map((row) => heads.map((head) => row[head])), title)];
}

/* --- what is apart, place by place --- */
const LIMIT = 10, LOWEST = 0.1;

/* A chart of lines. A line has `name`, `kind` and `marks`: null where nothing is known, else a number of floors,
   "same" for the same bits, or "beyond". Same bits lie on a line of their own, below any number; what is unknown is not drawn. */
function chart(title, places, lines) {
  const numbers = lines.flatMap((line) => line.marks).filter((mark) => typeof mark === "number");
  const high = Math.max(2, Math.ceil(Math.log10(Math.max(LIMIT, ...numbers)))), low = Math.log10(LOWEST);
  const room = Math.min(places.length > 40 ? 1120 : 620, document.documentElement.clientWidth - 76) - 86;  // no wider than a telephone where that can be
  const step = Math.max(4, Math.min(48, room / places.length)), left = 72, tall = 150, top = 32;
  const every = Math.ceil(18 / step), tilted = (place) => place.label.length * 7 > step * every;
  const middles = [];
  const wide = 14 + places.reduce((at, place) => {
    const width = place.joined ? step : Math.max(step, 20);  // what stands by itself has its name
    middles.push(at + width / 2);
    return at + width;
  }, left);
  const bottom = top + tall, foot = places.some(tilted) ? 84 : 22, x = (at) => middles[at];
  const y = (mark) => mark === "same" ? bottom - 6 : mark === "beyond" ? top - 16
    : bottom - 24 - (tall - 24) * (Math.max(low, Math.min(high, Math.log10(mark || LOWEST))) - low) / (high - low);
  const parts = [];
  for (let power = low; power <= high; power += 1) {
    const at = y(10 ** power);
    parts.push(draw("line", { x1: left, x2: wide - 8, y1: at, y2: at, class: power === 1 ? "limit" : "rule" }),
      draw("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, power === low ? `≤ ${LOWEST}` : `${power < 4 ? 10 ** power : `1e${power}`}`));
  }
  parts.push(draw("text", { x: left - 6, y: bottom - 2, "text-anchor": "end" }, "same bits"));
  if (lines.some((line) => line.marks.includes("beyond"))) parts.push(draw("text", { x: left - 6, y: top - 12, "text-anchor": "end" }, "beyond"));
  places.forEach((place, at) => {
    if (at % every && place.joined) return;
    parts.push(tilted(place)
      ? draw("text", { x: x(at) + 4, y: bottom + 12, "text-anchor": "end", transform: `rotate(-50 ${x(at) + 4} ${bottom + 12})` }, short(place.label, 16))
      : draw("text", { x: x(at), y: bottom + 14, "text-anchor": "middle" }, place.label));
  });
  for (const line of lines) {
    const path = [];
    line.marks.forEach((mark, at) => {
      if (mark === null || !places[at].joined) { path.push(null); return; }
      path.push(`${path.length && path[path.length - 1] ? "L" : "M"}${x(at)} ${y(mark)}`);
    });
    parts.push(draw("path", { d: path.filter(Boolean).join(" "), class: `line ${line.kind}` }));
    line.marks.forEach((mark, at) => {
      if (mark === null) return;
      const where = { cx: x(at), cy: y(mark) }, failed = line.failed ? line.failed[at] : mark === "beyond" || mark > LIMIT;
      const shape = mark === "same" ? draw("circle", { ...where, r: 3.5, class: `mark hollow ${line.kind}` })
        : failed ? draw("path", { d: `M${where.cx} ${where.cy - 6}l6 6l-6 6l-6 -6z`, class: `mark ${line.kind} far` })
          : draw("circle", { ...where, r: 4, class: `mark ${line.kind}` });
      shape.append(draw("title", {}, `${places[at].name}${line.name ? `, ${line.name}` : ""}: ${mark === "same" ? "same bits" : mark === "beyond" ? "beyond any noise" : times(mark)}${line.notes ? `, ${line.notes[at]}` : ""}`));
      parts.push(shape);
    });
  }
  const worst = lines.flatMap((line) => line.marks.map((mark, at) => [mark === "beyond" ? Infinity : mark, at, line]))
    .filter(([mark]) => typeof mark === "number").sort((one, other) => other[0] - one[0])[0];
  const words = worst ? `worst ${worst[0] === Infinity ? "beyond any noise" : times(worst[0])} at ${places[worst[1]].name}${worst[2].name ? `, ${worst[2].name}` : ""}` : "the same bits everywhere";
  const legend = lines.length > 1 ? lines.map((line) => el("span", { class: `key ${line.kind}` }, line.name)) : [];
  return el("figure", { class: "chart" }, el("figcaption", {}, el("strong", {}, title), `: ${words} `, ...legend),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Picture: ${title}` },
      draw("svg", { width: wide, height: bottom + foot, viewBox: `0 0 ${wide} ${bottom + foot}`, role: "img", "aria-label": `${title}: ${words}` }, ...parts)));
}

const mark = (row) => row.differ === 0 ? "same" : row.floors === null ? "beyond" : row.floors;

/* Leaves layer by layer: the worst leaf of each. */
function layers(table) {
  const charts = [];
  for (const series of new Set(table.map((row) => row.series))) {
    const rows = table.filter((row) => row.series === series);
    if (rows.length < 2) continue;
    const stacks = new Set(rows.filter((row) => row.number !== null).map((row) => row.stack));
    const places = rows.map((row) => ({
      label: row.number === null ? row.stack || "rest" : stacks.size > 1 ? `${row.stack} ${row.number}` : `${row.number}`,
      name: row.number === null ? row.stack || "rest" : `${row.stack} ${row.number}`, joined: row.number !== null }));
    charts.push(chart(`${series}${stacks.size === 1 ? `, by number of ${[...stacks][0]}` : ""}`, places, [{ name: "", kind: "one", marks: rows.map(mark),
      failed: rows.map((row) => row.rung === "failed"),
      notes: rows.map((row) => `${row.differ} of ${row.leaves} leaves differ${row.rung ? `, ${row.rung}` : ""}`) }]));
  }
  if (!charts.length) return [];
  const heads = ["of", "layer", "leaves", "differ", "worst leaf", "how far", "rung"];
  const lines = table.map((row) => [row.series, `${row.stack} ${row.number ?? ""}`, row.leaves, row.differ, row.leaf, row.differ ? times(row.floors) : "same bits", row.rung]);
  return [el("h3", {}, "Layer by layer, the worst leaf of each in units of its noise"),
    el("p", { class: "facts" }, "On the usual batch. The dashed line is the floor, 10 times the noise; a diamond holds no rung. A leaf that holds a whole stack of layers stands beside the layers."),
    el("div", { class: "charts" }, ...charts.slice(0, 6)),
    ...(charts.length > 6 ? [el("details", {}, el("summary", {}, `${charts.length - 6} more pictures`), el("div", { class: "charts" }, ...charts.slice(6)))] : []),
    el("details", {}, el("summary", {}, "The same as a table"), grid(heads, lines, "Layers"))];
}

/* Modules in the order of execution, as `parity run --bisect` evaluated them. */
function modules(rows) {
  const value = (found) => found === null || found === undefined ? null : found === "inf" ? "beyond" : found === 0 ? "same" : Number(found);
  const places = rows.map(([name]) => ({ label: name, name, joined: true }));
  const lines = [["activations", "one", 1], ["cotangents", "two", 2]].map(([name, kind, at]) => ({ name, kind, marks: rows.map((row) => value(row[at])) }));
  return chart("Modules in order of execution", places, lines.filter((line) => line.marks.some((found) => found !== null)));
}

/* --- arrays cut over the mesh --- */
const WIDE = 74, TALL = 34;

function cutting(found) {
  const wide = Math.max(...found.cells.map((row) => row.length)) * WIDE + 2, tall = found.cells.length * TALL + 2;
  const shown = (text) => text.length > 11 ? `${text.split(", ")[0]} … (${text.split(", ").length + Number((/and (\d+) more/.exec(text) || [0, 0])[1])})` : text;
  const boxes = found.cells.flatMap((row, down) => row.flatMap(([devices, colour], across) => [
    draw("rect", { x: across * WIDE + 1, y: down * TALL + 1, width: WIDE, height: TALL, fill: colour, class: "shard" }, draw("title", {}, `devices ${devices}`)),
    draw("text", { x: (across + 0.5) * WIDE + 1, y: (down + 0.5) * TALL + 5, "text-anchor": "middle", class: "on" }, shown(devices))]));
  const words = `${found.cells.length} by ${found.cells[0].length} shards; across: ${found.across}${found.down ? `; down: ${found.down}` : ""}`;
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Picture: ${words}` },
    draw("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": words }, ...boxes));
}

function specs(table, one) {
  const mesh = (side) => side === "candidate" && one.candidate_mesh ? one.candidate_mesh : one.mesh;
  const key = (row, side) => `${mesh(side)}|${row[side] || ""}|${row[`${side}_axes`] || ""}`;
  const figures = table.map((row) => {
    const sides = key(row, "reference") === key(row, "candidate") ? [["both sides", "reference"]] : [["reference", "reference"], ["candidate", "candidate"]];
    return el("figure", { class: sides.length > 1 ? "cut apart" : "cut" },
      el("figcaption", {}, el("strong", {}, `${row.leaves} ${row.leaves === 1 ? "leaf" : "leaves"}`), `, ${row.roles}, ${number(row.bytes)} bytes per device; such as `, el("code", {}, row.leaf), ` ${row.shape}`),
      ...sides.flatMap(([name, side]) => {
        const found = GRIDS[key(row, side)];
        const words = found ? `${found.across}${found.down ? `; down: ${found.down}` : ""}` : `spec ${row[side] || "whole"}`;
        return [el("p", { class: "facts" }, `${sides.length > 1 ? `${name}: ` : ""}${found && found.cells.length && row[side] ? "across: " : ""}${words}`), found && found.cells.length ? cutting(found) : null].filter(Boolean);
      }));
  });
  return [el("h3", {}, `Arrays on the mesh ${mesh("reference")}${mesh("candidate") === mesh("reference") ? "" : ` and ${mesh("candidate")}`}`),
    el("p", { class: "facts" }, "A box is a shard; the numbers in it are the devices that hold it."), el("div", { class: "charts" }, ...figures)];
}

const PICTURES = {
  leaves, layers, loops, specs,
  memory: (table) => both(table, "Memory and work of the compiled programs"),
  collectives: (table) => both(table, "Collectives, bytes moved"),
  map: (table) => plain(table, "Weight map, a line each way of pairing"),
};
const FIRST = ["layers", "leaves"];
