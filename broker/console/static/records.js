// The records of a topic over all its partitions, one page at a time, the newest or the oldest first.

import { fromAddress, link, toAddress } from "./address.js";
import { getJson, path, readLines } from "./api.js";
import { field, fill, h, notice, select, toast } from "./dom.js";
import { count, isoTime, time, zone } from "./format.js";
import { openRecord } from "./record.js";
import { csv, save, table } from "./table.js";

const DEFAULTS = { start: "newest", time: "", offset: "", partition: "", limit: "100", isolation: "read_uncommitted", form: "auto", cursor: "" };
/** A cursor names every partition; a longer one is left out of the address. */
const CURSOR_MAX = 1000;
const STARTS = [["newest", "newest"], ["until", "newest up to a time"], ["oldest", "oldest"], ["since", "from a time on"], ["offset", "from an offset on"]];

export function recordsTab(name) {
  const query = fromAddress(DEFAULTS);
  const list = h("div", { class: "card skeleton" });
  const cursors = query.cursor ? ["", query.cursor] : [""];
  let page = { records: [], cursor: null };
  let isRead = false;
  const start = select("start", STARTS, query.start);
  const moment = h("input", { id: "time", type: "datetime-local", step: 1, value: query.time });
  const offset = h("input", { id: "offset", type: "number", min: 0, value: query.offset });
  const partition = h("input", { id: "partition", type: "number", min: 0, placeholder: "all", value: query.partition });
  const limit = select("limit", [["25", "25"], ["100", "100"], ["500", "500"]], query.limit);
  const isolation = select("isolation", [["read_uncommitted", "all"], ["read_committed", "committed only"]], query.isolation);
  const form = select("form", [["auto", "text, JSON, schema"], ["hex", "hexadecimal"]], query.form);
  const momentField = field("Time", moment);
  const offsetField = field("Offset", offset);
  const controls = { start, time: moment, offset, partition, limit, isolation, form };
  for (const each of Object.values(controls)) each.addEventListener("change", again);
  showFields();

  function showFields() {
    momentField.hidden = !["until", "since"].includes(start.value);
    offsetField.hidden = start.value !== "offset";
  }

  function again() {
    showFields();
    for (const [key, control] of Object.entries(controls)) query[key] = control.value;
    cursors.length = 1;
    show("");
  }

  function show(cursor) {
    load(cursor).catch((error) => fill(list, notice(error.message, "bad")));
  }

  async function load(cursor, signal) {
    query.cursor = cursor.length > CURSOR_MAX ? "" : cursor;
    toAddress(query, DEFAULTS);
    const at = query.time ? new Date(query.time).getTime() : "";
    page = await getJson(path`/topics/${name}/records`, {
      limit: query.limit, partition: query.partition, cursor, isolation: query.isolation, form: query.form,
      order: ["newest", "until"].includes(query.start) ? "newest" : "oldest",
      until: query.start === "until" ? at : "", since: query.start === "since" ? at : "", from_offset: query.start === "offset" ? query.offset : "",
    }, signal);
    isRead = true;
    draw();
  }

  function draw() {
    const first = ["newest", "until"].includes(query.start) ? "Newest records first" : "Oldest records first";
    list.className = "card";
    fill(
      list,
      page.problems.map((each) => notice(each)),
      page.is_complete ? null : notice("Records may be missing: the page reached its limit of 32 MiB or 10 s.", "info"),
      recordTable(name, page.records, cursors.length > 1 ? `${first}, further page` : first),
      h(
        "div",
        { class: "pager" },
        h("button", { type: "button", id: "first", disabled: cursors.length === 1, click: again }, "First page"),
        h("button", { type: "button", id: "before", disabled: cursors.length === 1, click: () => { cursors.pop(); show(cursors.at(-1)); } }, "Previous"),
        h("button", { type: "button", id: "after", disabled: page.cursor === null, click: () => { cursors.push(page.cursor); show(page.cursor); } }, "Next"),
      ),
    );
  }

  return {
    root: h(
      "div",
      null,
      h("div", { class: "form" }, field("Start", start), momentField, offsetField, field("Partition", partition), field("Records per page", limit), field("Transactions", isolation), field("Values as", form),
        h("button", { type: "button", id: "reload", click: again }, "Reload")),
      h("div", { class: "form" }, h("div", { id: "count" }, countBox(name)), exportButtons(name, () => page.records)),
      list,
    ),
    again,
    isRead: () => isRead,
    refresh: (signal) => (isRead ? undefined : load(query.cursor, signal)),
  };
}

function countBox(name) {
  const shown = h("span", { class: "muted", role: "status" });
  let controller = null;
  const button = h("button", { type: "button", class: "quiet", id: "count-records", click: run }, "Count records");
  async function run() {
    if (controller) return controller.abort();
    controller = new AbortController();
    button.textContent = "Stop counting";
    try {
      await readLines(path`/topics/${name}/count`, { isolation: "read_committed" }, (line) => {
        if (line.progress) shown.textContent = `${count(line.progress.matches)} records in ${count(line.progress.total)} offsets${line.done === "complete" ? ": without markers, compacted offsets and aborted transactions" : line.done ? ` (${line.done})` : " so far"}`;
        if (line.problem) toast(line.problem);
      }, controller.signal);
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message);
    }
    controller = null;
    button.textContent = "Count records";
  }
  return [button, " ", shown];
}

export function exportButtons(name, rows) {
  return h("div", { class: "buttons" },
    h("button", { type: "button", id: "export-csv", click: () => save(`${name}.csv`, "text/csv", recordsAsCsv(rows())) }, "Export CSV"),
    h("button", { type: "button", id: "export-json", click: () => save(`${name}.jsonl`, "application/x-ndjson", rows().map((row) => JSON.stringify(row) + "\n").join("")) }, "Export JSON lines"));
}

function recordsAsCsv(rows) {
  const flat = rows.map((row) => ({
    partition: row.partition, offset: row.offset, timestamp: isoTime(row.timestamp_ms), key: row.key.text, value: row.value.text,
    headers: row.headers.map((each) => `${each.key}=${each.value.text}`).join("; "),
  }));
  return csv(["partition", "offset", "timestamp", "key", "value", "headers"], flat);
}

export function recordTable(name, rows, caption, none = ["No records", "Nothing was produced here yet, or everything was deleted."]) {
  const open = (row) => openRecord(name, row.partition, row.offset);
  return table(
    caption,
    [
      { title: `Time, ${zone()}`, of: (row) => h("span", { class: "small" }, time(row.timestamp_ms)) },
      { title: "Partition", number: true, of: (row) => row.partition },
      { title: "Offset", number: true, of: (row) => h("a", { href: link`topics/${name}/records/${row.partition}/${row.offset}`, "data-key": `${row.partition}-${row.offset}`, click: (event) => { if (!event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); open(row); } } }, row.offset) },
      { title: "Key", className: "value", of: (row) => shownValue(row.key) },
      { title: "Value", className: "value", of: (row) => shownValue(row.value) },
      { title: "Headers", className: "value", of: (row) => h("div", { class: "cut" }, row.headers.map((each) => `${each.key}: ${each.value.text}`).join("\n")) },
    ],
    rows,
    { onRow: open, none },
  );
}

function shownValue(value) {
  if (value.form === "null" || value.size === 0) return h("div", { class: "form-null" }, value.form === "null" ? "null" : "empty");
  return h("div", { class: `cut form-${value.form}`, title: value.problem ? `${value.schema}: ${value.problem}` : value.schema }, value.text + (value.is_truncated ? " …" : ""));
}
