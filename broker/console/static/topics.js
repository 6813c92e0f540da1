// The list of topics: searched, sorted and paged by the broker.

import { fromAddress, link, toAddress } from "./address.js";
import { getJson } from "./api.js";
import { openChange, showActions } from "./change.js";
import { field, fill, h, notice, searchInput, tag } from "./dom.js";
import { byteRate, bytes, compact, count, plural, rate } from "./format.js";
import { pager, save, csv, table } from "./table.js";

const LIMIT = 50;
const GROUPS_MAX = 3;
const DEFAULTS = { search: "", sort: "name", order: "ascending", offset: 0, internal: false };

export function topicsPage() {
  const query = fromAddress(DEFAULTS);
  const list = h("div", { class: "card skeleton" });
  const problems = h("div", null);
  let rows = [];
  const search = searchInput(query.search, change, { maxlength: 249 });
  const internal = h("input", { id: "internal", type: "checkbox", checked: query.internal, change: () => change({ internal: internal.checked, offset: 0 }) });

  async function change(parts) {
    Object.assign(query, parts);
    toAddress(query, DEFAULTS);
    try {
      await draw();
    } catch (error) {
      fill(problems, notice(error.message, "bad"));
    }
  }

  const sorted = {
    get key() { return query.sort; },
    get order() { return query.order; },
    by(key) {
      const isDescending = query.sort === key ? query.order === "ascending" : key !== "name";
      change({ sort: key, order: isDescending ? "descending" : "ascending", offset: 0 });
    },
  };

  async function draw(signal) {
    const asked = JSON.stringify(query);
    const page = await getJson("/topics", { ...query, limit: LIMIT }, signal);
    if (asked !== JSON.stringify(query)) return;
    rows = page.topics;
    list.className = "card";
    fill(problems, page.unavailable.map((each) => notice(`Broker ${each.broker} did not respond: ${each.reason}. Sizes are too low.`)));
    fill(
      list,
      table(`${plural(page.total, "topic")}. Records in are of the cluster; where other brokers lead, by the growth of offsets, which counts transaction markers as well. ≥ means that only this broker's are known yet. Bytes in and out are of this broker, over the last 10 s.`, COLUMNS, rows, {
        sorted,
        onRow: (row) => (location.hash = link`topics/${row.name}`),
        none: query.search ? ["No topic matches", "Search for another part of the name."] : ["No topics yet", "Create one here if console.write.enable is true, or with kafka-topics --create."],
      }),
      page.total > LIMIT ? pager(query.offset, LIMIT, page.total, (offset) => change({ offset })) : null,
    );
  }

  const actions = h("span", null);

  return {
    title: "Topics",
    root: h(
      "div",
      null,
      h("div", { class: "head" }, h("h1", null, "Topics"), h("div", { class: "end" }, actions, h("button", { type: "button", id: "export", click: () => save("topics.csv", "text/csv", csv(EXPORTED, rows)) }, "Export CSV"))),
      h("div", { class: "form" }, h("label", { class: "wide" }, "Search", search), h("label", { class: "line" }, internal, "Internal topics")),
      problems,
      list,
    ),
    async refresh(signal) {
      await Promise.all([draw(signal), showActions(actions, [["create-topic", "Create topic", openCreate]])]);
    },
  };
}

function openCreate() {
  const name = h("input", { id: "topic-name", type: "text", required: true, maxlength: 249, spellcheck: "false", autocomplete: "off" });
  const partitions = h("input", { id: "topic-partitions", type: "number", min: 1, placeholder: "default" });
  const replicas = h("input", { id: "topic-replicas", type: "number", min: 1, placeholder: "default" });
  const configs = h("textarea", { id: "topic-configs", spellcheck: "false", placeholder: "one a line: retention.ms=604800000" });
  openChange("Create a topic", () => "/topics", {
    fields: [field("Name", name, "wide"), field("Partitions", partitions), field("Replicas", replicas), field("Settings", configs, "wide")],
    body: () => ({ name: name.value, partitions: Number(partitions.value || -1), replication_factor: Number(replicas.value || -1), configs: settings(configs.value) }),
    verb: "Create",
    done: () => (location.hash = link`topics/${name.value}/partitions`),
  });
}

function settings(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`Setting ${JSON.stringify(line)}: expected name=value.`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

const EXPORTED = ["name", "partitions", "replication_factor", "size_bytes", "offsets", "messages_in", "cluster_messages_in", "bytes_in", "bytes_out", "under_replicated", "offline"];

const COLUMNS = [
  { title: "Topic", sort: "name", className: "name", of: (row) => [h("a", { href: link`topics/${row.name}` }, row.name), " ", row.is_internal ? tag("internal") : null] },
  { title: "Partitions", sort: "partitions", number: true, of: (row) => `${count(row.partitions)} × ${row.replication_factor}` },
  { title: "Offsets", number: true, of: (row) => count(row.offsets) },
  { title: "Size", sort: "size", number: true, of: (row) => bytes(row.size_bytes) },
  { title: "Records in", sort: "messages_in", number: true, of: (row) => (row.cluster_messages_in === null ? `≥ ${rate(row.messages_in, compact)}` : rate(row.cluster_messages_in, compact)) },
  { title: "Bytes in, this broker", sort: "bytes_in", number: true, of: (row) => byteRate(row.bytes_in) },
  { title: "Bytes out, this broker", sort: "bytes_out", number: true, of: (row) => byteRate(row.bytes_out) },
  { title: "Groups", className: "groups", of: (row) => (row.groups === null ? "…" : groupLinks(row)) },
  { title: "State", of: (row) => [row.offline ? tag(`${row.offline} offline`, "bad") : row.under_replicated ? tag(`${row.under_replicated} under-replicated`, "warn") : tag("ok", "good")] },
];

function groupLinks(row) {
  const more = row.groups.length - GROUPS_MAX;
  return [
    ...row.groups.slice(0, GROUPS_MAX).map((each) => h("div", null, h("a", { href: link`groups/${each.group}` }, each.group), h("span", { class: "muted small" }, each.lag === null ? "" : ` ${count(each.lag)} behind`))),
    more > 0 ? h("a", { class: "small", href: link`topics/${row.name}/groups` }, `and ${count(more)} more`) : null,
  ];
}
