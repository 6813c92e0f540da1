// One group: members, assignment, lag per partition with its last hour, and its offsets when the broker allows changes.

import { getJson, path, sendJson } from "./api.js";
import { spark } from "./chart.js";
import { dialog, field, fill, h, notice, select, stat, tag, toast } from "./dom.js";
import { count, duration } from "./format.js";
import { stateTag } from "./groups.js";
import { csv, save, table } from "./table.js";

export function groupPage([name]) {
  const facts = h("div", { class: "skeleton" });
  const members = h("section", { class: "card" });
  const partitions = h("section", { class: "card" });
  const actions = h("div", { class: "end" });
  let shown = null;

  async function draw(signal) {
    const [group, state] = await Promise.all([getJson(path`/groups/${name}`, {}, signal), getJson("/overview", {}, signal)]);
    shown = group;
    facts.className = "";
    fill(facts, h("div", { class: "stats" }, stat("state", group.state, group.state === "Stable" ? "good" : ""), stat("lag in offsets", count(group.lag)),
      stat("oldest unread record", duration(Math.max(0, ...group.partitions.map((row) => row.lag_ms ?? 0)))), stat("members", count(group.members.length)),
      stat("coordinator", `broker ${group.coordinator}`), stat("assignor", group.assignor || "–")),
      group.has_history ? null : notice(`The lag of the last hour is kept by the coordinator: open the console of broker ${group.coordinator}.`, "info"));
    fill(members, h("h2", null, "Members"), memberTable(group.members));
    fill(partitions, h("h2", null, "Partitions"), partitionTable(group));
    fill(actions, h("button", { type: "button", id: "export", click: exported }, "Export CSV"),
      state.is_writing_enabled
        ? [h("button", { type: "button", id: "reset", click: () => openReset(shown, draw) }, "Reset offsets"), h("button", { type: "button", id: "delete-topic", click: () => openDelete(shown, draw) }, "Delete offsets"),]
        : null);
  }

  function exported() {
    save(`${name}.csv`, "text/csv", csv(["topic", "partition", "committed", "end", "lag", "lag_ms", "status", "member"], shown.partitions));
  }

  return {
    title: name,
    root: h("div", null, h("div", { class: "head" }, h("div", { class: "crumbs" }, h("a", { href: "#/groups" }, "Groups")), h("h1", null, name), actions), facts, partitions, members),
    refresh: draw,
  };
}

function memberTable(rows) {
  return table("", [
    { title: "Member", of: (row) => h("span", { class: "mono small" }, row.instance_id ? `${row.instance_id} (${row.member_id})` : row.member_id) },
    { title: "Client", of: (row) => row.client_id },
    { title: "Host", of: (row) => row.host },
    { title: "Assignment", of: (row) => row.assignment.map((each) => h("div", null, `${each.topic}: ${each.partitions.join(", ")}`)) },
  ], rows, { none: ["No members", "No consumer of the group is connected."] });
}

const STATUS = { OK: "good", WARN: "warn", STOP: "bad" };

function partitionTable(group) {
  return table("Lag in offsets; lag in time is the age of the first unread record. STOP: unread records and no member.", [
    { title: "Topic", of: (row) => h("a", { href: `#/topics/${encodeURIComponent(row.topic)}` }, row.topic) },
    { title: "Partition", number: true, of: (row) => row.partition },
    { title: "Committed", number: true, of: (row) => (row.committed === "" ? "–" : count(BigInt(row.committed))) },
    { title: "End", number: true, of: (row) => (row.end === null ? "–" : count(BigInt(row.end))) },
    { title: "Lag", number: true, of: (row) => count(row.lag) },
    { title: "In time", number: true, of: (row) => (row.lag_ms === null ? "–" : duration(row.lag_ms)) },
    { title: "Last hour", of: (row) => (row.lags.length ? spark(`Lag of ${row.topic}-${row.partition} over the last hour`, row.lags) : h("span", { class: "muted" }, "–")) },
    { title: "Status", of: (row) => tag(row.status, STATUS[row.status]) },
  ], group.partitions, { none: ["No committed offsets", "The group has not committed anything."] });
}

function openReset(group, done) {
  const topics = [...new Set(group.partitions.map((row) => row.topic))];
  const boxes = topics.map((topic) => h("input", { type: "checkbox", value: topic, checked: true, change: clear }));
  const others = h("input", { id: "other-topics", type: "text", placeholder: "further topics, with commas", input: clear });
  const strategy = select("strategy", [["earliest", "to the first record"], ["latest", "to the end"], ["offset", "to an offset"], ["shift", "shift by a number"], ["time", "to a time"]], "earliest");
  const number = h("input", { id: "reset-value", type: "number", value: "0", input: clear });
  const moment = h("input", { id: "reset-time", type: "datetime-local", step: 1, input: clear });
  const numberField = field("Number", number);
  const momentField = field("Time", moment);
  const result = h("div", { id: "preview", role: "status" });
  const apply = h("button", { type: "button", class: "danger", id: "apply", disabled: true, click: () => send(false) }, "Reset");
  strategy.addEventListener("change", () => { shown(); clear(); });

  function clear() {
    apply.disabled = true;
    fill(result);
  }

  function shown() {
    numberField.hidden = !["offset", "shift"].includes(strategy.value);
    momentField.hidden = strategy.value !== "time";
  }

  async function send(isPreview) {
    const value = strategy.value === "time" ? new Date(moment.value).getTime() : Number(number.value);
    try {
      const preview = await sendJson("POST", path`/groups/${group.group}/offsets`, {
        topics: [...boxes.filter((each) => each.checked).map((each) => each.value), ...others.value.split(",").map((each) => each.trim()).filter(Boolean)],
        strategy: strategy.value, value: Number.isFinite(value) ? value : 0, is_preview: isPreview,
      });
      apply.disabled = !isPreview || Boolean(preview.problem);
      fill(result, notice(preview.problem), preview.is_done ? notice("The offsets were reset.", "info") : null, table(preview.is_done ? "Now" : "Preview: nothing was changed yet", [
        { title: "Topic", of: (row) => row.topic },
        { title: "Partition", number: true, of: (row) => row.partition },
        { title: "Before", number: true, of: (row) => (row.before === null ? "–" : count(BigInt(row.before))) },
        { title: "After", number: true, of: (row) => h("b", null, count(BigInt(row.after))) },
        { title: "Change", number: true, of: (row) => (row.before === null ? "–" : count(BigInt(row.after) - BigInt(row.before))) },
        { title: "First", number: true, of: (row) => count(BigInt(row.start)) },
        { title: "End", number: true, of: (row) => count(BigInt(row.end)) },
      ], preview.offsets));
      if (preview.is_done) await done();
    } catch (error) {
      apply.disabled = true;
      fill(result, notice(error.message, "bad"));
    }
  }

  shown();
  dialog(`Reset offsets of ${group.group}`, h("div", { class: "form" }, topics.map((topic, at) => h("label", { class: "line" }, boxes[at], topic)), field("Further topics", others, "wide")),
    h("div", { class: "form" }, field("Set", strategy), numberField, momentField, h("button", { type: "button", id: "show-preview", class: "primary", click: () => send(true) }, "Preview"), apply), result);
}

function openDelete(group, done) {
  const topics = [...new Set(group.partitions.map((row) => row.topic))];
  const result = h("div", null);
  const run = (request) => async () => {
    try {
      toast((await request()).done);
      opened.close();
      await done().catch(() => (location.hash = "#/groups"));
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
  };
  const opened = dialog(`Delete offsets of ${group.group}`,
    topics.map((topic) => h("p", null, h("button", { type: "button", class: "danger", click: run(() => sendJson("DELETE", path`/groups/${group.group}/offsets/${topic}`)) }, `Delete the offsets of ${topic}`))),
    h("p", null, h("button", { type: "button", class: "danger", id: "delete-group", click: run(() => sendJson("DELETE", path`/groups/${group.group}`)) }, "Delete the group with all offsets")), result);
}
