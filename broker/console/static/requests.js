// Rates and latencies over time, and request times by part.

import { getJson } from "./api.js";
import { chart } from "./chart.js";
import { fill, h, notice, select, svg, tag } from "./dom.js";
import { byteRate, bytes, compact, count, milliseconds, rate } from "./format.js";
import { table } from "./table.js";

const PARTS = [["queue", "queue", 1], ["local", "local", 2], ["remote", "remote", 3], ["throttle", "throttled", 4], ["response_queue", "response queue", 5], ["send", "send", 6]];

const sizes = (value) => bytes(Math.round(value));

export function requestsPage() {
  const window = select("window", [["hour", "last hour, every 10 s"], ["day", "last 24 hours, every 2 min"]], "hour");
  const charts = h("div", { class: "grid" }, h("div", { class: "card skeleton" }), h("div", { class: "card skeleton" }));
  const all = h("div", null);
  const list = h("section", { class: "card skeleton" });
  async function draw(signal) {
    const [rates, served, figures] = await Promise.all([getJson("/rates", { window: window.value }, signal), getJson("/requests", {}, signal), getJson("/figures/all", {}, signal)]);
    fill(all, allBrokers(figures, served.broker));
    const one = (title, names, text) => h("section", { class: "card" }, h("h2", null, title),
      chart(title, names.map(([key, label]) => ({ title: label, values: rates.series[key] ?? [] })), { end: rates.end_ms, step: rates.step_ms, text, base: text === sizes ? 2 : 10 }));
    const microseconds = (value) => milliseconds(value / 1000);
    fill(charts,
      one("Records in per second", [["messages_in", "records"]], compact),
      one("Bytes per second", [["bytes_in", "in"], ["bytes_out", "out"]], sizes),
      one("Requests per second", [["requests", "all"], ["Produce_requests", "produce"], ["FetchConsumer_requests", "consumer fetch"]], compact),
      one("Latency, 99th percentile", [["Produce_p99_us", "produce"], ["Metadata_p99_us", "metadata"], ["OffsetCommit_p99_us", "commit"]], microseconds),
      one("Latency of fetches with their wait, 99th percentile", [["FetchConsumer_p99_us", "consumer fetch"], ["FetchFollower_p99_us", "follower fetch"]], microseconds),
      one("Event loop lag, 99th percentile", [["loop_lag_p99_us", "lag"]], microseconds));
    list.className = "card";
    fill(list, h("h2", null, `Requests of broker ${served.broker} since its start`), legend(), table("Means of the parts; quantiles of recent requests. Consumer fetches wait for records, which counts as remote.", [
      { title: "Request", of: (row) => h("b", null, row.name) },
      { title: "Count", number: true, of: (row) => count(row.count) },
      { title: "Mean", number: true, of: (row) => milliseconds(row.total_ms_mean) },
      { title: "p50", number: true, of: (row) => milliseconds(row.p50_ms) },
      { title: "p99", number: true, of: (row) => milliseconds(row.p99_ms) },
      { title: "p99.9", number: true, of: (row) => milliseconds(row.p999_ms) },
      { title: "Parts", of: stack },
      { title: "Errors", of: (row) => Object.entries(row.errors).map(([name, number]) => h("div", { class: "small" }, `${name}: ${count(number)}`)) },
    ], served.requests, { none: ["No requests yet", "Clients have not sent anything."] }));
  }
  window.addEventListener("change", () => draw());
  return {
    title: "Requests",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Requests and rates"), h("div", { class: "end" }, h("label", { class: "line" }, "Window", window))), all, charts, list),
    refresh: draw,
  };
}

/** The figures of this broker, and of those whose consoles it asks. */
function allBrokers(found, own) {
  const others = "Kafka's protocol has no request for the figures of another broker: console.brokers names the HTTP ports that are asked.";
  return h("section", { class: "card" }, h("h2", null, "Brokers"),
    found.silent.map((each) => notice(`${each.address} did not report its figures: ${each.reason}.`)),
    table(`Over the last 10 s. ${found.brokers.length + found.silent.length > 1 ? "" : others}`, [
      { title: "Broker", of: (row) => [h("b", null, row.broker), " ", row.broker === own ? tag("this one") : null] },
      { title: "Records in", number: true, of: (row) => rate(row.messages_in) },
      { title: "Bytes in", number: true, of: (row) => byteRate(row.bytes_in) },
      { title: "Bytes out", number: true, of: (row) => byteRate(row.bytes_out) },
      { title: "Requests", number: true, of: (row) => rate(row.requests) },
      { title: "Produce, p99", number: true, of: (row) => (row.produce_p99_ms === null ? "–" : milliseconds(row.produce_p99_ms)) },
      { title: "Consumer fetch, p99", number: true, of: (row) => (row.fetch_p99_ms === null ? "–" : milliseconds(row.fetch_p99_ms)) },
      { title: "Loop idle", number: true, of: (row) => `${row.loop_idle_percent.toFixed(0)} %` },
      { title: "Loop lag, p99", number: true, of: (row) => milliseconds(row.loop_lag_p99_ms) },
      { title: "Connections", number: true, of: (row) => count(row.connections) },
    ], found.brokers));
}

function legend() {
  return h("div", { class: "legend" }, PARTS.map(([, title, at]) => h("span", null, svg("svg", { viewBox: "0 0 8 8", "aria-hidden": "true" }, svg("rect", { width: 8, height: 8, rx: 2, class: `s${at}` })), title)));
}

function stack(row) {
  const total = Object.values(row.parts_ms_mean).reduce((sum, value) => sum + value, 0) || 1;
  const text = PARTS.map(([key, title]) => `${title} ${milliseconds(row.parts_ms_mean[key])}`).join(", ");
  const drawing = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": text });
  let x = 0;
  for (const [key, , at] of PARTS) {
    const width = (100 * row.parts_ms_mean[key]) / total;
    drawing.append(svg("rect", { x, y: 0, width, height: 10, class: `s${at}`, "stroke-width": 0 }));
    x += width;
  }
  return h("div", { class: "stack", title: text }, drawing);
}
