// Brokers: controller, log directories, configuration and the recent events of the controller.

import { getJson } from "./api.js";
import { configTab } from "./configs.js";
import { fill, h, notice, tag } from "./dom.js";
import { duration, milliseconds, time, zone } from "./format.js";
import { brokersOf } from "./overview.js";
import { table } from "./table.js";

export function brokersPage([id]) {
  if (id !== undefined) {
    const content = configTab("broker", id);
    return {
      title: `Broker ${id}`,
      root: h("div", null, h("div", { class: "head" }, h("div", { class: "crumbs" }, h("a", { href: "#/brokers" }, "Brokers")), h("h1", null, `Configuration of broker ${id}`)), content.root),
      refresh: content.refresh,
      isRead: content.isRead,
    };
  }
  const list = h("section", { class: "card skeleton" });
  const details = h("div", { class: "grid" });
  const log = h("div", null);
  return {
    title: "Brokers",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Brokers")), list, details, log),
    async refresh(signal) {
      const [state, served] = await Promise.all([getJson("/overview", {}, signal), getJson("/requests", {}, signal)]);
      list.className = "card";
      fill(list, state.unavailable.map((each) => notice(`Broker ${each.broker} did not respond: ${each.reason}.`)), brokersOf(state),
        h("p", null, "Configuration of ", state.brokers.filter((each) => each.is_alive).map((each) => [h("a", { href: `#/brokers/${each.id}` }, `broker ${each.id}`), " "])));
      fill(details, loop(served, state), purgatories(served));
      fill(log, events(served));
    },
  };
}

function loop(served, state) {
  return h("section", { class: "card" }, h("h2", null, `Broker ${served.broker}, which serves this page`),
    h("dl", { class: "facts" },
      h("dt", null, "Version"), h("dd", null, `${state.version}, hot loops ${state.hot_loops}`), h("dt", null, "Up"), h("dd", null, duration(state.now_ms - state.started_ms)),
      h("dt", null, "Event loop idle"), h("dd", null, `${served.loop_idle_percent} %`),
      h("dt", null, "Event loop lag"), h("dd", null, Object.entries(served.loop_lag_ms).filter(([name]) => ["0.50", "0.99", "0.999"].includes(name)).map(([name, value]) => `p${Number(name) * 100}: ${milliseconds(value)}`).join(", ")),
      h("dt", null, "Connections"), h("dd", null, served.connections), h("dt", null, "Fetch sessions"), h("dd", null, served.fetch_sessions)),
    table("Listeners", [{ title: "Listener", of: ([name]) => name }, { title: "Advertised address", of: ([, address]) => address }], Object.entries(state.brokers.find((each) => each.is_this)?.listeners ?? {})));
}

function purgatories(served) {
  return h("section", { class: "card" }, h("h2", null, "Waiting requests"), table("", [
    { title: "Purgatory", of: (row) => row.name }, { title: "Requests", number: true, of: (row) => row.waiting }, { title: "Watched keys", number: true, of: (row) => row.watched },
  ], served.purgatories));
}

function events(served) {
  return h("section", { class: "card" }, h("h2", null, "Recent events of the controller"),
    served.is_controller
      ? table("", [{ title: `Time, ${zone()}`, of: (row) => h("span", { class: "small" }, time(row.time_ms)) }, { title: "Event", of: (row) => row.kind }, { title: "Took", number: true, of: (row) => duration(row.duration_ms) }, { title: "Result", of: (row) => (row.error ? tag(row.error, "bad") : tag("ok", "good")) }],
          served.controller_events.slice(0, 20), { none: ["No events yet", "Events appear when topics, brokers or replicas change."] })
      : h("p", { class: "muted" }, "This broker is not the controller. Open the console of the controller to see its events."));
}
