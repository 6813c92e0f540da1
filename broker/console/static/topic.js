// One topic: records, partitions, search, live tail, configuration and producing, each a tab.

import { link } from "./address.js";
import { getJson, path } from "./api.js";
import { openChange, showActions } from "./change.js";
import { configTab } from "./configs.js";
import { copyButton, field, fill, h, notice, tag } from "./dom.js";
import { bytes, count, plural, span } from "./format.js";
import { produceTab } from "./produce.js";
import { recordPage } from "./record.js";
import { recordsTab } from "./records.js";
import { searchTab } from "./search.js";
import { pager, table } from "./table.js";
import { tailTab } from "./tail.js";
import { topicGroupsTab } from "./topic_groups.js";

const LIMIT = 100;
const TABS = [
  ["records", "Records", recordsTab],
  ["search", "Search", searchTab],
  ["tail", "Live tail", tailTab],
  ["partitions", "Partitions", partitionsTab],
  ["groups", "Groups", topicGroupsTab],
  ["config", "Configuration", (name) => configTab("topic", name)],
  ["produce", "Produce", produceTab],
];

export function topicPage([name, tab = "records", ...rest]) {
  if (tab === "records" && rest.length === 2) return recordPage([name, tab, ...rest]);
  const found = TABS.find(([key]) => key === tab) ?? TABS[0];
  const content = found[2](name);
  const actions = h("div", { class: "end" });
  return {
    title: name,
    root: h(
      "div",
      null,
      h("div", { class: "head" }, h("div", { class: "crumbs" }, h("a", { href: "#/topics" }, "Topics")), h("h1", null, name), copyButton("the name", name), actions),
      h("div", { class: "tabs", role: "navigation", "aria-label": "Views of the topic" }, TABS.map(([key, title]) => h("a", { href: link`topics/${name}/${key}`, "aria-current": key === found[0] ? "page" : null }, title))),
      content.root,
    ),
    async refresh(signal) {
      await Promise.all([content.refresh?.(signal), showActions(actions, changes(name, () => (content.again ?? content.refresh)?.()))]);
    },
    isRead: content.isRead,
    stop: content.stop,
  };
}

function changes(name, done) {
  return [
    ["add-partitions", "Add partitions", () => openGrow(name, done)],
    ["empty-topic", "Empty", () => openEmpty(name, done)],
    ["delete-topic", "Delete", () => openChange(`Delete topic ${name}`, () => path`/topics/${name}/delete`, { verb: "Delete", done: () => (location.hash = "#/topics") })],
  ];
}

function openGrow(name, done) {
  const total = h("input", { id: "partition-count", type: "number", min: 1, required: true });
  openChange(`Add partitions to ${name}`, () => path`/topics/${name}/partitions`, {
    fields: [field("Partitions in total", total)], body: () => ({ count: Number(total.value) }), verb: "Add", done,
  });
}

function openEmpty(name, done) {
  const partition = h("input", { id: "empty-partition", type: "number", min: 0, placeholder: "all" });
  openChange(`Delete all records of ${name}`, () => path`/topics/${name}/empty`, {
    fields: [field("Partition", partition)], body: () => ({ partition: Number(partition.value || -1) }), verb: "Delete records", done,
  });
}

function partitionsTab(name) {
  const list = h("div", { class: "card skeleton" });
  let offset = 0;
  async function draw(signal) {
    const topic = await getJson(path`/topics/${name}`, { offset, limit: LIMIT }, signal);
    list.className = "card";
    fill(
      list,
      topic.unavailable.map((each) => notice(`Broker ${each.broker} did not respond: ${each.reason}. Its logs are not shown.`)),
      table(`${plural(topic.partition_count, "partition")}, replication factor ${topic.replication_factor}, topic id ${topic.topic_id}`, COLUMNS, topic.partitions),
      topic.partition_count > LIMIT ? pager(offset, LIMIT, topic.partition_count, (next) => { offset = next; draw(); }) : null,
    );
  }
  return { root: list, refresh: draw };
}

export function stateTag(state) {
  return tag(state, { ok: "good", "under-replicated": "warn", offline: "bad", "not preferred": "" }[state]);
}

const COLUMNS = [
  { title: "Partition", of: (row) => h("b", null, row.partition) },
  { title: "Leader", of: (row) => (row.leader < 0 ? "none" : h("a", { href: link`brokers/${row.leader}` }, row.leader)) },
  { title: "Preferred", of: (row) => row.preferred_leader },
  { title: "Replicas", of: (row) => row.replicas.join(", ") },
  { title: "In sync", of: (row) => row.isr.join(", ") },
  { title: "Start", number: true, of: (row) => (row.start_offset === null ? "–" : count(BigInt(row.start_offset))) },
  { title: "End", number: true, of: (row) => (row.end_offset === null ? "–" : count(BigInt(row.end_offset))) },
  { title: "Offsets", number: true, of: (row) => count(span(row.start_offset, row.end_offset)) },
  { title: "Logs", of: (row) => row.logs.map((log) => h("div", { class: "small" }, `${log.broker}: ${bytes(log.size_bytes)}`, log.is_future ? tag("moving", "accent") : null, log.offset_lag > 0 ? h("span", { class: "muted" }, ` ${count(log.offset_lag)} behind`) : null)) },
  { title: "State", of: (row) => stateTag(row.state) },
];
