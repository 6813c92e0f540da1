// Line charts as SVG: an axis of values, an axis of time, and the values under the pointer or at the arrow keys' position.

import { empty, fill, h, svg } from "./dom.js";
import { count } from "./format.js";

const HEIGHT = 190;
const LEFT = 58;
const BOTTOM = 22;
const TOP = 8;

/** Where the arrow keys are in the chart that has the focus: its title, and how many samples before the last one. */
const position = { title: "", fromEnd: 0 };

/**
 * series: [{ title, values: [number or null] }], the oldest value first. `end` is the time of the last value in ms, `step` the ms
 * between two. `text(value)` writes a value.
 */
export function chart(title, series, { end, step, text, isFilled = true, base = 10 }) {
  if (series.every((each) => each.values.every((value) => value === null))) return empty("No values yet", "They appear when there is something to measure.");
  const WIDTH = innerWidth < 720 ? 340 : 600; // text keeps its size
  series = recorded(series);
  const size = Math.max(1, ...series.map((each) => each.values.length));
  const top = roundUp(Math.max(0, ...series.flatMap((each) => each.values.map((value) => value ?? 0))), base);
  const x = (at) => LEFT + ((WIDTH - LEFT - 6) * at) / Math.max(1, size - 1);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const drawing = svg("svg", {
    class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: 0, "data-key": `chart-${title}`,
    "aria-label": `${title}: ${series.map((each) => `${each.title} now ${now(each, text)}`).join(", ")}`,
  });
  for (const share of [0, 0.5, 1]) {
    drawing.append(
      svg("line", { class: "gridline", x1: LEFT, x2: WIDTH - 6, y1: y(top * share), y2: y(top * share) }),
      svg("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, text(top * share)),
    );
  }
  for (const share of [0, 0.5, 1]) {
    const moment = new Date(end - step * (size - 1) * (1 - share));
    const label = moment.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
    drawing.append(svg("text", { x: x((size - 1) * share), y: HEIGHT - 6, "text-anchor": ["start", "middle", "end"][share * 2] }, label));
  }
  series.forEach((each, at) => {
    for (const piece of pieces(each.values)) {
      const points = piece.map(([index, value]) => `${x(index).toFixed(1)} ${y(value).toFixed(1)}`);
      if (isFilled && series.length === 1) {
        drawing.append(svg("path", { class: `area s${at + 1}`, d: `M${x(piece[0][0])} ${y(0)}L${points.join("L")}L${x(piece.at(-1)[0])} ${y(0)}Z` }));
      }
      drawing.append(svg("path", { class: `series s${at + 1}`, d: points.length > 1 ? `M${points.join("L")}` : `M${points[0]}h1.5` }));
    }
  });
  const legend = h("div", { class: "legend" });
  const cursor = svg("line", { class: "gridline", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
  drawing.append(cursor);
  const showValues = (index) => {
    const when = index === null ? "" : new Date(end - step * (size - 1 - index)).toLocaleTimeString("en-GB");
    fill(
      legend,
      series.map((each, at) =>
        h("span", null, svg("svg", { viewBox: "0 0 8 8", "aria-hidden": "true" }, svg("rect", { width: 8, height: 8, rx: 2, class: `s${at + 1}` })),
          `${each.title} ${index === null ? now(each, text) : each.values[index] === null ? "–" : text(each.values[index])}`)),
      h("span", null, when),
    );
  };
  const point = (index) => {
    cursor.setAttribute("x1", index === null ? -9 : x(index));
    cursor.setAttribute("x2", index === null ? -9 : x(index));
    showValues(index);
  };
  const clamped = (index) => Math.min(size - 1, Math.max(0, index));
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - 6);
    point(clamped(Math.round(at * (size - 1))));
  });
  drawing.addEventListener("pointerleave", () => point(null));
  drawing.addEventListener("focus", () => {
    if (position.title !== title) Object.assign(position, { title, fromEnd: 0 });
    point(clamped(size - 1 - position.fromEnd));
  });
  drawing.addEventListener("blur", () => point(null));
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 30, PageDown: -30, Home: size, End: -size }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const index = clamped(size - 1 - position.fromEnd - step);
    Object.assign(position, { title, fromEnd: size - 1 - index });
    point(index);
  });
  showValues(null);
  return h("div", null, drawing, legend);
}

/** A small line without axes. Its label has the last and the largest value, which `text(value)` writes. */
export function spark(title, values, text = count) {
  const top = Math.max(1, ...values.map((value) => value ?? 0));
  const largest = Math.max(0, ...values.map((value) => value ?? 0));
  const x = (at) => 1 + (118 * at) / Math.max(1, values.length - 1);
  const drawing = svg("svg", { class: "spark", viewBox: "0 0 120 26", role: "img", "aria-label": `${title}: now ${now({ values }, text)}, at most ${text(largest)}` });
  for (const piece of pieces(values)) {
    const points = piece.map(([index, value]) => `${x(index).toFixed(1)} ${(24 - (22 * value) / top).toFixed(1)}`);
    drawing.append(svg("path", { d: points.length > 1 ? `M${points.join("L")}` : `M${points[0]}h2` }));
  }
  return drawing;
}

/** A bar that is filled to a share from 0 to 1. */
export function bar(share, label) {
  const filled = h("i", null);
  filled.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  const kind = share > 0.92 ? "bad" : share > 0.85 ? "warn" : "";
  return h("div", { class: `bar ${kind}`, role: "img", "aria-label": label }, filled);
}

function now(series, text) {
  const last = series.values.findLast((value) => value !== null);
  return last === undefined ? "–" : text(last);
}

function pieces(values) {
  const found = [];
  values.forEach((value, index) => {
    if (value === null) return;
    if (index === 0 || values[index - 1] === null) found.push([]);
    found.at(-1).push([index, value]);
  });
  return found;
}

/** Leaves out the time before the first sample, but shows a sixth of the whole at least. */
function recorded(series) {
  const firsts = series.map((each) => each.values.findIndex((value) => value !== null)).filter((at) => at >= 0);
  const size = Math.max(0, ...series.map((each) => each.values.length));
  const first = Math.max(0, Math.min(firsts.length ? Math.min(...firsts) : size, size - Math.ceil(size / 6)));
  return series.map((each) => ({ ...each, values: each.values.slice(first) }));
}

/** Returns a round number that is not less: 1, 2 or 5 times a power of ten; a power of two for bytes. */
function roundUp(value, base) {
  if (value <= 0) return 1;
  if (base === 2) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}
