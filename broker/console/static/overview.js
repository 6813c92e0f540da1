// The state of the cluster at a glance.

import { getJson } from "./api.js";
import { bar, chart } from "./chart.js";
import { fill, h, notice, stat, tag } from "./dom.js";
import { byteRate, bytes, compact, count, duration, milliseconds, rate } from "./format.js";
import { table } from "./table.js";

const sizes = (value) => bytes(Math.round(value));

export function overviewPage() {
  const title = h("h1", null, "Overview");
  const facts = h("div", { class: "skeleton" });
  const charts = h("div", { class: "grid" });
  const brokers = h("div", null);
  const machine = h("div", null);
  return {
    title: "Overview",
    root: h("div", null, h("div", { class: "head" }, title), facts, charts, brokers, machine),
    async refresh(signal) {
      const [state, rates] = await Promise.all([getJson("/overview", {}, signal), getJson("/rates", { window: "hour" }, signal)]);
      facts.className = "";
      fill(facts, ...factsOf(state));
      fill(charts, ...chartsOf(rates));
      fill(brokers, h("section", { class: "card" }, h("h2", null, "Brokers"), brokersOf(state)));
      fill(machine, machineOf(state.machine));
    },
  };
}

function factsOf(state) {
  return [
    ...state.unavailable.map((each) => notice(`Broker ${each.broker} did not respond: ${each.reason}. Its log directories are not shown.`)),
    h(
      "div",
      { class: "stats" },
      stat("brokers alive", `${state.brokers.filter((each) => each.is_alive).length} of ${state.brokers.length}`, state.brokers.every((each) => each.is_alive) ? "good" : "bad"),
      stat("under-replicated", count(state.under_replicated), state.under_replicated ? "warn" : "good"),
      stat("offline partitions", count(state.offline), state.offline ? "bad" : "good"),
      stat("below min ISR", count(state.under_min_isr), state.under_min_isr ? "bad" : "good"),
      stat("topics", count(state.topics)),
      stat("partitions", count(state.partitions)),
      stat("records in, cluster", state.rates.cluster_messages_in === null ? "–" : rate(state.rates.cluster_messages_in)),
      stat("records in, this broker", rate(state.rates.messages_in)),
      stat("bytes in, this broker", byteRate(state.rates.bytes_in)),
      stat("bytes out, this broker", byteRate(state.rates.bytes_out)),
      stat("requests, this broker", rate(state.rates.requests)),
      stat("event loop idle", `${state.rates.loop_idle_percent.toFixed(0)} %`, state.rates.loop_idle_percent < 20 ? "warn" : ""),
      stat("loop lag, p99", milliseconds(state.rates.loop_lag_p99_ms), state.rates.loop_lag_p99_ms > 50 ? "warn" : ""),
    ),
    h(
      "section",
      { class: "card" },
      h(
        "dl",
        { class: "facts" },
        h("dt", null, "Cluster id"), h("dd", { class: "mono" }, state.cluster_id),
        h("dt", null, "Controller"), h("dd", null, state.controller_id < 0 ? tag("none", "bad") : `broker ${state.controller_id}, epoch ${state.controller_epoch ?? "unknown"}`),
        h("dt", null, "Seen from"), h("dd", null, `broker ${state.broker_id}, Milena ${state.version}, up ${duration(state.now_ms - state.started_ms)}, ${state.state.toLowerCase()}`),
        h("dt", null, "Console"), h("dd", null, state.is_writing_enabled ? tag("writing enabled", "warn") : tag("read-only", "good"), state.has_authorizer ? " acts through the authorizer" : ""),
      ),
    ),
  ];
}

function machineOf(machine) {
  const used = machine.memory_bytes ? 1 - machine.memory_available_bytes / machine.memory_bytes : 0;
  const modes = Object.entries(machine.cpu_percent).map(([mode, share]) => `${mode} ${share.toFixed(0)} %`).join(", ");
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Machine of this broker"),
    h(
      "dl",
      { class: "facts" },
      h("dt", null, "Load"), h("dd", null, machine.load.map((each) => each.toFixed(2)).join(", ") || "unknown"),
      h("dt", null, "Processors"), h("dd", null, `${modes}; this broker ${machine.broker_cpu_percent.toFixed(0)} %`),
      h("dt", null, "Memory"), h("dd", null, bar(used, "memory in use"), h("div", { class: "small muted" }, `${bytes(machine.memory_available_bytes)} of ${bytes(machine.memory_bytes)} available; this broker ${bytes(machine.broker_memory_bytes)}`)),
      h("dt", null, "Swap"), h("dd", null, machine.swap_used_bytes ? tag(`${bytes(machine.swap_used_bytes)} in use`, "warn") : "not in use"),
      h("dt", null, "Network"), h("dd", null, `${byteRate(machine.network_in_bytes)} in, ${byteRate(machine.network_out_bytes)} out`, machine.network_errors ? [" ", tag(`${count(machine.network_errors)} errors`, "warn")] : null),
      h("dt", null, "Open files"), h("dd", null, `${count(machine.open_files)} of ${count(machine.open_files_max)}`),
      machine.disks.map((each) => [
        h("dt", null, `Disk ${each.name}`),
        h("dd", null, `busy ${each.busy_percent.toFixed(0)} %, ${byteRate(each.read_bytes)} read, ${byteRate(each.written_bytes)} written, ${milliseconds(each.wait_ms)} for a request`),
      ]),
      machine.volumes.map((each) => [
        h("dt", null, "Volume of ", h("span", { class: "mono" }, each.path)),
        h("dd", null, `${each.free_percent.toFixed(0)} % free, ${each.free_inodes_percent.toFixed(0)} % of the inodes`),
      ]),
    ),
  );
}

function chartsOf(rates) {
  const options = { end: rates.end_ms, step: rates.step_ms };
  const one = (title, names, text) =>
    h("section", { class: "card" }, h("h2", null, title), chart(title, names.map(([name, label]) => ({ title: label, values: rates.series[name] ?? [] })), { ...options, text, base: text === sizes ? 2 : 10 }));
  return [
    one("Records in per second, this broker", [["messages_in", "records"]], compact),
    one("Bytes per second, this broker", [["bytes_in", "in"], ["bytes_out", "out"]], sizes),
  ];
}

export function brokersOf(state) {
  return table(
    `Controller, partitions and log directories. ${state.brokers.length === 1 ? "One broker." : ""}`,
    [
      { title: "Broker", of: (row) => [h("b", null, row.id), " ", row.is_controller ? tag("controller", "accent") : null, " ", row.is_alive ? null : tag("away", "bad"), " ", row.is_this ? tag("this one") : null] },
      { title: "Address", of: (row) => (row.is_alive ? `${row.host}:${row.port}` : "–") },
      { title: "Rack", of: (row) => row.rack ?? "–" },
      { title: "Leaders", number: true, of: (row) => count(row.leaders) },
      { title: "Replicas", number: true, of: (row) => count(row.replicas) },
      { title: "Out of sync", number: true, of: (row) => (row.out_of_sync ? tag(count(row.out_of_sync), "warn") : "0") },
      { title: "Log directories", of: (row) => (row.log_dirs === null ? h("span", { class: "muted" }, "…") : row.log_dirs.map(directory)) },
    ],
    state.brokers,
  );
}

export function directory(each) {
  if (each.error) return h("div", null, h("span", { class: "mono" }, each.path), " ", tag(each.error, "bad"));
  const used = each.total_bytes > 0 ? 1 - each.usable_bytes / each.total_bytes : 0;
  const text = `${bytes(each.size_bytes)} in ${count(each.replicas)} logs; ${bytes(each.usable_bytes)} of ${bytes(each.total_bytes)} free`;
  return h("div", null, h("div", { class: "mono" }, each.path), bar(used, text), h("div", { class: "small muted" }, text));
}
