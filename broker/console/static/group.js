// One group: members, assignment, lag per partition with its last hour, and its offsets when the broker allows changes.

import { fromAddress, link, toAddress } from "./address.js";
import { getJson, mayWrite, path, readLines, sendJson } from "./api.js";
import { spark } from "./chart.js";
import { openChange } from "./change.js";
import { copyButton, dialog, field, fill, h, notice, select, stat } from "./dom.js";
import { clock, count, duration, plural, rate } from "./format.js";
import { statusTag } from "./groups.js";
import { csv, pager, save, table } from "./table.js";

const LIMIT = 100;
const DEFAULTS = { sort: "name", offset: 0 };
const ASSIGNED_MAX = 20;
/** Topics that a dialog shows one by one. */
const TOPICS_MAX = 50;

export function groupPage([name]) {
  const facts = h("div", { class: "skeleton" });
  const members = h("section", { class: "card" });
  const partitions = h("section", { class: "card" });
  const actions = h("div", { class: "end" });
  const rows = h("div", null);
  const unread = new Unread(() => shown, () => showRows());
  const query = fromAddress(DEFAULTS);
  let shown = null;
  fill(partitions, h("h2", null, "Partitions"), unread.root, rows);

  const sorted = {
    get key() { return query.sort; },
    get order() { return query.sort === "name" ? "ascending" : "descending"; },
    by: (key) => change({ sort: key, offset: 0 }),
  };

  function change(parts) {
    Object.assign(query, parts);
    toAddress(query, DEFAULTS);
    draw().catch((error) => fill(rows, notice(error.message, "bad")));
  }

  function showRows() {
    fill(rows, partitionTable(shown, unread, sorted),
      shown.partition_count > LIMIT ? pager(query.offset, LIMIT, shown.partition_count, (offset) => change({ offset })) : null);
  }

  async function draw(signal) {
    const asked = JSON.stringify(query);
    const [group, isWritable] = await Promise.all([getJson(path`/groups/${name}`, { ...query, limit: LIMIT }, signal), mayWrite()]);
    if (asked !== JSON.stringify(query)) return;
    shown = group;
    facts.className = "";
    fill(facts, h("div", { class: "stats" }, stat("status", statusTag(group.status)), stat("state", group.state, group.state === "Stable" ? "good" : ""), stat("lag in offsets", count(group.lag)),
      stat("oldest unread record", duration(group.oldest_unread_ms)), stat("members", count(group.members.length)),
      stat("coordinator", h("a", { href: link`brokers/${group.coordinator}` }, `broker ${group.coordinator}`)), stat("assignor", group.assignor || "–")),
      group.has_history ? null : notice(`The lag of the last hour is kept by the coordinator: open the console of broker ${group.coordinator}.`, "info"));
    fill(members, h("h2", null, "Members"), memberTable(group.members));
    unread.button.disabled = !group.lag && !unread.isRunning;
    showRows();
    fill(actions, h("button", { type: "button", id: "export", click: exported }, "Export CSV"),
      isWritable
        ? [h("button", { type: "button", id: "reset", click: () => openReset(shown, draw) }, "Reset offsets"), h("button", { type: "button", id: "delete-offsets", disabled: !shown.topics.length, click: () => openDelete(shown, draw) }, "Delete offsets"),
          h("button", { type: "button", id: "delete-group", click: () => openChange(`Delete group ${name}`, () => path`/groups/${name}/delete`, { verb: "Delete", done: () => (location.hash = "#/groups") }) }, "Delete group")]
        : null);
  }

  function exported() {
    save(`${name}.csv`, "text/csv", csv(["topic", "partition", "committed", "end", "lag", "lag_ms", "status", "member"], shown.partitions));
  }

  return {
    title: name,
    root: h("div", null, h("div", { class: "head" }, h("div", { class: "crumbs" }, h("a", { href: "#/groups" }, "Groups")), h("h1", null, name), copyButton("the name", name), actions), facts, partitions, members),
    refresh: draw,
    stop: () => unread.stop(),
  };
}

/** Counts the unread records of the partitions: offsets also count markers, compacted records and aborted transactions. */
class Unread {
  #counts = new Map();
  #controller = null;
  #drawn;
  #group;
  #state = h("span", { class: "muted", id: "unread-state", role: "status" });

  /** `group()` returns the group with the partitions that are shown; `drawn()` shows the counts. */
  constructor(group, drawn) {
    this.#group = group;
    this.#drawn = drawn;
    this.button = h("button", { type: "button", class: "quiet", id: "count-unread", click: () => (this.#controller ? this.stop() : this.#run()) }, "Count unread records");
    this.root = h("div", null, this.button, " ", this.#state);
  }

  get isRunning() {
    return this.#controller !== null;
  }

  of(row) {
    return row.lag === 0 ? 0 : this.#counts.get(`${row.topic}-${row.partition}`) ?? null;
  }

  stop() {
    this.#controller?.abort();
  }

  async #run() {
    this.#controller = new AbortController();
    this.button.textContent = "Stop counting";
    this.#counts.clear();
    try {
      const group = this.#group();
      for (const [topic, rows] of byTopic(group.partitions.filter((row) => row.lag))) await this.#count(topic, rows);
      const sum = [...this.#counts.values()].reduce((total, value) => total + value, 0);
      const where = group.partition_count > group.partitions.length ? " in the partitions that are shown" : "";
      this.#state.textContent = `${count(sum)} unread records${where} at ${clock()}, without markers, compacted offsets and aborted transactions`;
    } catch (error) {
      this.#state.textContent = error.name === "AbortError" ? "Stopped." : error.message;
    }
    this.#controller.abort(); // a count that failed may still be running
    this.#controller = null;
    this.button.textContent = "Count unread records";
    this.#drawn();
  }

  async #count(topic, rows) {
    const from = rows.map((row) => `${row.partition}:${row.committed}`).join(",");
    let end = "the connection ended";
    await readLines(path`/topics/${topic}/count`, { isolation: "read_committed", from_offsets: from }, (line) => {
      if (line.problem) throw new Error(`${topic}: ${line.problem}`);
      if (line.progress) this.#state.textContent = `${topic}: ${count(line.progress.matches)} records in ${count(line.progress.scanned)} of ${count(line.progress.total)} offsets`;
      if (line.done) end = line.done;
      for (const [partition, value] of Object.entries(line.counts ?? {})) this.#counts.set(`${topic}-${partition}`, value);
    }, this.#controller.signal);
    if (end !== "complete") throw new Error(`${topic}: ${end}`);
  }
}

function byTopic(rows) {
  const topics = new Map();
  for (const row of rows) topics.set(row.topic, [...(topics.get(row.topic) ?? []), row]);
  return topics;
}

function memberTable(rows) {
  return table("", [
    { title: "Member", of: (row) => h("span", { class: "mono small" }, row.instance_id ? `${row.instance_id} (${row.member_id})` : row.member_id) },
    { title: "Client", of: (row) => row.client_id },
    { title: "Host", of: (row) => row.host },
    { title: "Assignment", of: (row) => assignment(row.assignment) },
  ], rows, { none: ["No members", "No consumer of the group is connected."] });
}

function assignment(topics) {
  const more = topics.length - ASSIGNED_MAX;
  return [...topics.slice(0, ASSIGNED_MAX).map((each) => h("div", null, h("a", { href: link`topics/${each.topic}` }, each.topic), `: ${each.partitions.join(", ")}`)),
    more > 0 ? h("div", { class: "muted" }, `and ${count(more)} topics`) : null];
}

function partitionTable(group, unread, sorted) {
  return table(`${plural(group.partition_count, "partition")}. Lag in offsets; lag in time is the age of the first unread record. STOP: unread records and no member. STALL: a member that reads nothing for ten minutes. WARN: a lag that grows in each of them.`, [
    { title: "Topic", sort: "name", of: (row) => h("a", { href: link`topics/${row.topic}` }, row.topic) },
    { title: "Partition", number: true, of: (row) => row.partition },
    { title: "Committed", number: true, of: (row) => (row.committed === "" ? "–" : count(BigInt(row.committed))) },
    { title: "End", number: true, of: (row) => (row.end === null ? "–" : count(BigInt(row.end))) },
    { title: "Lag", sort: "lag", number: true, of: (row) => count(row.lag) },
    { title: "Unread records", number: true, of: (row) => count(unread.of(row)) },
    { title: "In time", number: true, of: (row) => (row.lag_ms === null ? "–" : duration(row.lag_ms)) },
    { title: "Lag, last hour", of: (row) => hour(`Lag of ${row.topic}-${row.partition} over the last hour`, row.lags) },
    { title: "Read, last hour", of: (row) => hour(`Offsets per second of ${row.topic}-${row.partition} over the last hour`, row.rates, rate) },
    { title: "Status", of: (row) => statusTag(row.status) },
  ], group.partitions, { sorted, none: ["No committed offsets", "The group has not committed anything."] });
}

function hour(title, values, text) {
  if (!values.length) return h("span", { class: "muted" }, "–");
  return [spark(title, values, text), text ? [" ", h("span", { class: "small" }, text(values.at(-1)))] : null];
}

function openReset(group, done) {
  const all = group.topics.length > TOPICS_MAX ? `all ${count(group.topics.length)} topics` : "";
  const topics = all ? [all] : group.topics;
  const boxes = topics.map((topic) => h("input", { type: "checkbox", value: topic, checked: true, change: clear }));
  const others = h("input", { id: "other-topics", type: "text", placeholder: "further topics, with commas", input: clear });
  const strategy = select("strategy", [["earliest", "to the first record"], ["latest", "to the end"], ["offset", "to an offset"], ["shift", "shift by a number"], ["time", "to a time"]], "earliest");
  const number = h("input", { id: "reset-value", type: "number", value: "0", input: clear });
  const moment = h("input", { id: "reset-time", type: "datetime-local", step: 1, input: clear });
  const numberField = field("Number", number);
  const momentField = field("Time", moment);
  const result = h("div", { id: "preview", role: "status" });
  const apply = h("button", { type: "button", class: "danger", id: "apply", disabled: true, click: () => send(previewed) }, "Reset");
  let previewed = [];
  strategy.addEventListener("change", () => { shown(); clear(); });

  function clear() {
    previewed = [];
    apply.disabled = true;
    fill(result);
  }

  function shown() {
    numberField.hidden = !["offset", "shift"].includes(strategy.value);
    momentField.hidden = strategy.value !== "time";
  }

  /** Sends a preview, or the rows of one that are confirmed. */
  async function send(confirm) {
    const chosen = [...boxes.filter((each) => each.checked).flatMap((each) => (all ? group.topics : each.value)), ...others.value.split(",").map((each) => each.trim()).filter(Boolean)];
    if (!chosen.length) return fill(result, notice("Choose at least one topic.", "bad")); // none would mean all
    const value = strategy.value === "time" ? new Date(moment.value).getTime() : Number(number.value);
    if (strategy.value === "time" && Number.isNaN(value)) return fill(result, notice("Choose a time.", "bad"));
    if (["offset", "shift"].includes(strategy.value) && (number.value === "" || !Number.isSafeInteger(value))) return fill(result, notice("Write a whole number.", "bad"));
    apply.disabled = true; // a second click must not make the change twice
    try {
      const preview = await sendJson("POST", path`/groups/${group.group}/offsets`, {
        topics: chosen,
        strategy: strategy.value, value: value || 0, confirm,
      });
      const failed = preview.offsets.filter((row) => row.problem).length;
      previewed = preview.is_done ? [] : preview.offsets;
      apply.disabled = preview.is_done || Boolean(preview.problem);
      fill(result, notice(preview.problem), preview.is_done ? (failed ? notice(`Not reset: ${failed} of ${preview.offsets.length}.`, "bad") : notice("The offsets were reset.", "info")) : null, table(preview.is_done ? "Now" : "Preview: nothing was changed yet", [
        { title: "Topic", of: (row) => row.topic },
        { title: "Partition", number: true, of: (row) => row.partition },
        { title: "Before", number: true, of: (row) => (row.before === null ? "–" : count(BigInt(row.before))) },
        { title: "After", number: true, of: (row) => h("b", null, count(BigInt(row.after))) },
        { title: "Change", number: true, of: (row) => (row.before === null ? "–" : count(BigInt(row.after) - BigInt(row.before))) },
        { title: "First", number: true, of: (row) => count(BigInt(row.start)) },
        { title: "End", number: true, of: (row) => count(BigInt(row.end)) },
        ...(failed ? [{ title: "Problem", of: (row) => row.problem }] : []),
      ], preview.offsets));
      if (preview.is_done) await done();
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
  }

  shown();
  dialog(`Reset offsets of ${group.group}`, h("div", { class: "form" }, topics.map((topic, at) => h("label", { class: "line" }, boxes[at], topic)), field("Further topics", others, "wide")),
    h("div", { class: "form" }, field("Set", strategy), numberField, momentField, h("button", { type: "button", id: "show-preview", class: "primary", click: () => send([]) }, "Preview"), apply), result);
}

function openDelete(group, done) {
  const topic = select("delete-topic-name", group.topics.map((each) => [each, each]), group.topics[0]);
  openChange(`Delete offsets of ${group.group}`, () => path`/groups/${group.group}/offsets/${topic.value}/delete`, {
    fields: [field("Topic", topic)],
    verb: "Delete offsets",
    done: () => done().catch(() => (location.hash = "#/groups")),
  });
}
