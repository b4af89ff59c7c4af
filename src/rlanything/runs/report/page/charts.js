// Charts: lines with intervals, and stacked bars. Each can be read by pointer, by arrow keys, and
// as a table.

let charts = 0;

// On a telephone a chart is drawn smaller, so that its text is not scaled down with it.
const narrow = () => window.matchMedia("(max-width: 560px)").matches;
const wide = () => narrow() ? 350 : 540;

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) {
    found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  }
  return found;
}

const known = (value) => value !== null && value !== undefined;

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (!known(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low <= high ? [low, high] : [0, 1];
}

// Pieces of a line between which something was not measured.
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (known(point.y)) found[found.length - 1].push(point);
    else if (found[found.length - 1].length) found.push([]);
  }
  return found.filter((piece) => piece.length);
}

const path = (points, x, y) =>
  points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("");

// series: [{name, color, points: [{x, y, low, high}], dashed, dots}]
function lineChart(options) {
  const { title, what, series, format = short, small = false, references = [], unit = "iteration" } = options;
  const width = small ? 240 : wide(), height = small ? 84 : 230;
  const margin = small ? { left: 4, right: 4, top: 6, bottom: 6 } : { left: 46, right: 12, top: 10, bottom: 26 };
  const all = series.flatMap((each) => each.points);
  let [left, right] = extent(all.map((p) => p.x));
  if (left === right) { left -= 0.5; right += 0.5; }
  let [low, high] = extent([
    ...all.flatMap((p) => known(p.low) ? [p.y, p.low, p.high] : [p.y]), ...references.map((each) => each.y),
  ]);
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 0.5;
  low = low >= 0 && low - room < 0 ? 0 : low - room;
  high += room;
  const x = (at) => margin.left + (at - left) / (right - left) * (width - margin.left - margin.right);
  const y = (at) => height - margin.bottom - (at - low) / (high - low) * (height - margin.top - margin.bottom);

  const shapes = [];
  if (!small) {
    for (const at of ticks(low, high, 4)) {
      shapes.push(draw("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: y(at), y2: y(at) }));
      shapes.push(draw("text", { class: "tick", x: margin.left - 6, y: y(at) + 4, "text-anchor": "end" }, format(at)));
    }
    for (const at of ticks(left, right, Math.min(narrow() ? 5 : 8, right - left)).map(Math.round)) {
      shapes.push(draw("text", { class: "tick", x: x(at), y: height - 8, "text-anchor": "middle" }, at));
    }
  }
  for (const each of references) {
    shapes.push(draw("line", { class: "reference", x1: margin.left, x2: width - margin.right, y1: y(each.y), y2: y(each.y) }));
    if (!small) shapes.push(draw("text", { class: "tick", x: width - margin.right, y: y(each.y) - 4, "text-anchor": "end" }, each.label));
  }
  for (const each of series) {
    const color = `c${each.color}`;
    for (const piece of pieces(each.points)) {
      const sure = piece.filter((p) => known(p.low));
      if (sure.length > 1 && !each.dots) {
        const above = path(sure.map((p) => ({ x: p.x, y: p.high })), x, y);
        const below = path(sure.map((p) => ({ x: p.x, y: p.low })).reverse(), x, y).replace("M", "L");
        shapes.push(draw("path", { class: `band ${color}`, d: `${above}${below}Z` }));
      }
      shapes.push(draw("path", { class: `line ${color}${each.dashed ? " dashed" : ""}`, d: path(piece, x, y) }));
      if (each.dots || piece.length === 1) {
        for (const p of piece) {
          if (known(p.low)) shapes.push(draw("line", { class: `whisker ${color}`, x1: x(p.x), x2: x(p.x), y1: y(p.low), y2: y(p.high) }));
          shapes.push(draw("circle", { class: `dot ${color}`, cx: x(p.x), cy: y(p.y), r: small ? 2.5 : 4 }));
        }
      }
    }
  }
  const places = [...new Set(all.map((p) => p.x))].sort((one, two) => one - two);
  const byPlace = series.map((each) => new Map(each.points.map((p) => [p.x, p])));
  const value = (point) => !point || !known(point.y) ? "–"
    : known(point.low) ? `${format(point.y)} [${format(point.low)}, ${format(point.high)}]` : format(point.y);
  const label = (at) => at === 0 && unit === "iteration" ? "before training" : `${unit} ${at}`;
  const read = (i) => `${label(places[i])}: ${series.map((each, s) =>
    series.length > 1 ? `${each.name} ${value(byPlace[s].get(places[i]))}` : value(byPlace[s].get(places[i]))).join("; ")}`;
  return frame({
    ...options, width, height, shapes, places: places.map(x), read, top: margin.top, bottom: height - margin.bottom,
    legend: series.length > 1 && !small ? series.map((each) => ({ ...each, block: false })) : [],
    resting: small ? value(series[0].points.filter((p) => known(p.y)).at(-1)) : "",
    table: () => table([unit, ...series.map((each) => each.name)],
      places.map((at) => [at, ...byPlace.map((each) => value(each.get(at)))])),
  });
}

// rows: [{x, parts: {name: value}}]; names: in the order of the stack.
function barChart(options) {
  const { names, rows, format, unit = "iteration" } = options;
  const width = Math.max(350, Math.min(1100, document.documentElement.clientWidth - 80)), height = 260, margin = { left: 52, right: 8, top: 10, bottom: 26 };
  const totals = rows.map((row) => names.reduce((sum, name) => sum + (row.parts[name] || 0), 0));
  const high = Math.max(...totals, 1e-9) * 1.04;
  const slot = (width - margin.left - margin.right) / Math.max(rows.length, 1);
  const y = (at) => height - margin.bottom - at / high * (height - margin.top - margin.bottom);
  const middle = (i) => margin.left + (i + 0.5) * slot;
  const shapes = ticks(0, high, 4).flatMap((at) => [
    draw("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: y(at), y2: y(at) }),
    draw("text", { class: "tick", x: margin.left - 6, y: y(at) + 4, "text-anchor": "end" }, format(at)),
  ]);
  const thick = Math.min(slot * 0.78, 64);
  const every = Math.max(1, Math.ceil(rows.length / (width / 45)));
  rows.forEach((row, i) => {
    let below = 0;
    names.forEach((name, color) => {
      const amount = row.parts[name] || 0;
      if (!amount) return;
      shapes.push(draw("rect", { class: `bar c${color % 7}`, x: middle(i) - thick / 2, width: thick,
        y: y(below + amount), height: Math.max(y(below) - y(below + amount) - (rows.length < 60 ? 0.8 : 0), 0.3) }));
      below += amount;
    });
    if (i % every === 0) shapes.push(draw("text", { class: "tick", x: middle(i), y: height - 8, "text-anchor": "middle" }, row.x));
  });
  const read = (i) => `${unit} ${rows[i].x}: ${format(totals[i])} (${names.filter((name) => rows[i].parts[name])
    .map((name) => `${name} ${format(rows[i].parts[name])}`).join(", ")})`;
  return frame({
    ...options, width, height, shapes, places: rows.map((_, i) => middle(i)), read, top: margin.top, bottom: height - margin.bottom,
    legend: names.map((name, color) => ({ name, color: color % 7, block: true })),
    table: () => table([unit, ...names], rows.map((row) => [row.x, ...names.map((name) => format(row.parts[name]))])),
  });
}

function frame({ title, what, small, width, height, shapes, places, read, legend, resting = "", table: rows, top, bottom }) {
  const id = `chart-${charts++}`;
  const cursor = draw("line", { class: "cursor", y1: top, y2: bottom });
  const readout = el("div", { class: "readout", "aria-live": "polite" }, resting);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-what` },
    draw("title", { id: `${id}-title` }, `${title}; arrow keys read the values`), draw("desc", { id: `${id}-what` }, what || title), shapes, cursor);
  let at = -1;
  function show(i) {
    if (!places.length) return;
    at = Math.max(0, Math.min(places.length - 1, i));
    cursor.setAttribute("x1", places[at]);
    cursor.setAttribute("x2", places[at]);
    cursor.style.visibility = "visible";
    readout.textContent = read(at);
  }
  function rest() {
    at = -1;
    cursor.style.visibility = "hidden";
    readout.textContent = resting;
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * width;
    let nearest = 0;
    places.forEach((each, i) => { if (Math.abs(each - place) < Math.abs(places[nearest] - place)) nearest = i; });
    show(nearest);
  });
  svg.addEventListener("pointerleave", rest);
  svg.addEventListener("blur", rest);
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: at + 1, ArrowLeft: at < 0 ? places.length - 1 : at - 1, Home: 0, End: places.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(moves[event.key]);
  });
  const numbers = el("details", { class: "small" }, el("summary", null, "Numbers"));
  numbers.addEventListener("toggle", () => {
    if (numbers.open && numbers.childElementCount === 1) numbers.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, numbers` }, rows()));
  });
  return el("figure", small ? null : { class: "card" },
    el(small ? "h4" : "h3", { title: small ? what : null }, title), small ? null : el("p", { class: "what" }, what),
    legend.length ? el("ul", { class: "legend" }, legend.map((each) =>
      el("li", { class: `c${each.color}` }, el("i", { class: each.block ? "block" : each.dashed ? "dashed" : null }), each.name))) : null,
    svg, readout, numbers);
}

function table(head, rows, caption) {
  return el("table", null, caption && el("caption", null, caption),
    el("thead", null, el("tr", null, head.map((each) => el("th", { scope: "col" }, each)))),
    el("tbody", null, rows.map((row) => el("tr", null, row.map((cell, i) =>
      i ? el("td", null, cell) : el("th", { scope: "row" }, cell))))));
}

// Before and after with their intervals, on one scale from 0 to 1.
function dumbbell(before, after, color) {
  const width = 240, x = (share) => 6 + share * (width - 12);
  const row = (interval, y, shape) => interval === null ? [] : [
    draw("line", { class: `whisker c${color}`, x1: x(interval.low), x2: x(interval.high), y1: y, y2: y }),
    draw("circle", { class: `${shape} c${color}`, cx: x(interval.estimate), cy: y, r: 4 }),
  ];
  return draw("svg", { viewBox: `0 0 ${width} 30`, width, height: 30, "aria-hidden": "true" },
    draw("line", { class: "axis", x1: 6, x2: width - 6, y1: 15, y2: 15 }), row(before, 8, "hollow"), row(after, 22, "dot"));
}
