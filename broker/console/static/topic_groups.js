// The groups that read a topic.

import { link } from "./address.js";
import { getJson, path } from "./api.js";
import { chart } from "./chart.js";
import { fill, h } from "./dom.js";
import { bytes, compact, count } from "./format.js";
import { table } from "./table.js";

const sizes = (value) => bytes(Math.round(value));

export function topicGroupsTab(name) {
  const list = h("div", { class: "card skeleton" });
  const charts = h("div", { class: "grid" });
  return {
    root: h("div", null, list, charts),
    async refresh(signal) {
      const [found, rates] = await Promise.all([getJson(path`/topics/${name}/groups`, {}, signal), getJson("/rates", { topic: name }, signal)]);
      list.className = "card";
      fill(list, table("Groups with committed offsets of this topic", [
        { title: "Group", of: (row) => h("a", { href: link`groups/${row.group}` }, row.group) },
        { title: "Lag", number: true, of: (row) => count(row.lag) },
      ], found.groups, { none: ["No group reads this topic", "Groups appear when they commit an offset."] }));
      const one = (title, names, text) => h("section", { class: "card" }, h("h2", null, title),
        chart(title, names.map(([key, label]) => ({ title: label, values: rates.series[key] ?? [] })), { end: rates.end_ms, step: rates.step_ms, text, base: text === sizes ? 2 : 10 }));
      fill(charts, one("Records in per second, last hour", [["messages_in", "records"]], compact), one("Bytes per second, last hour", [["bytes_in", "in"], ["bytes_out", "out"]], sizes));
    },
  };
}
