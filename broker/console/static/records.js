// The newest records of a topic over all its partitions, one page at a time.

import { getJson, mayWrite, path, readLines } from "./api.js";
import { dialog, field, fill, h, notice, select, toast } from "./dom.js";
import { bytes, count, isoTime, time } from "./format.js";
import { resend } from "./produce.js";
import { csv, save, table } from "./table.js";

export function recordsTab(name) {
  const list = h("div", { class: "card skeleton" });
  const cursors = [""];
  let page = { records: [], cursor: null };
  let isLoaded = false;
  const again = () => load("").catch((error) => fill(list, notice(error.message, "bad")));
  const partition = h("input", { id: "partition", type: "number", min: 0, placeholder: "all", change: again });
  const limit = select("limit", [["25", "25"], ["100", "100"], ["500", "500"]], "100");
  const isolation = select("isolation", [["read_uncommitted", "all"], ["read_committed", "committed only"]], "read_uncommitted");
  const form = select("form", [["auto", "text, JSON, schema"], ["hex", "hexadecimal"]], "auto");
  const until = h("input", { id: "until", type: "datetime-local", step: 1, change: again });
  for (const each of [limit, isolation, form]) each.addEventListener("change", again);

  async function load(cursor, signal) {
    const query = {
      limit: limit.value, partition: partition.value, cursor, isolation: isolation.value, form: form.value,
      until: until.value ? new Date(until.value).getTime() : "",
    };
    page = await getJson(path`/topics/${name}/records`, query, signal);
    if (cursor === "") cursors.length = 1;
    isLoaded = true;
    draw();
  }

  function draw() {
    list.className = "card";
    fill(
      list,
      page.problems.map((each) => notice(each)),
      page.is_complete ? null : notice("Older records may be missing: the page reached its limit of 32 MiB.", "info"),
      recordTable(name, page.records, cursors.length > 1 ? "Older records" : "Newest records first"),
      h(
        "div",
        { class: "pager" },
        h("button", { type: "button", id: "newest", disabled: cursors.length === 1, click: again }, "Newest"),
        h("button", { type: "button", id: "newer", disabled: cursors.length === 1, click: () => { cursors.pop(); load(cursors.at(-1)).catch((error) => toast(error.message)); } }, "Newer"),
        h("button", { type: "button", id: "older", disabled: page.cursor === null, click: () => { cursors.push(page.cursor); load(page.cursor).catch((error) => toast(error.message)); } }, "Older"),
      ),
    );
  }

  return {
    root: h(
      "div",
      null,
      h("div", { class: "form" }, field("Partition", partition), field("Records per page", limit), field("Transactions", isolation), field("Values as", form), field("Up to", until),
        h("button", { type: "button", id: "reload", click: again }, "Reload")),
      h("div", { class: "form" }, h("div", { id: "count" }, countBox(name)), exportButtons(name, () => page.records)),
      list,
    ),
    refresh: (signal) => (isLoaded ? undefined : load("", signal)),
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
  return table(
    caption,
    [
      { title: "Time", of: (row) => h("span", { class: "small" }, time(row.timestamp_ms)) },
      { title: "Partition", number: true, of: (row) => row.partition },
      { title: "Offset", number: true, of: (row) => h("button", { type: "button", class: "quiet", "data-key": `${row.partition}-${row.offset}`, click: () => openRecord(name, row) }, row.offset) },
      { title: "Key", className: "value", of: (row) => shownValue(row.key) },
      { title: "Value", className: "value", of: (row) => shownValue(row.value) },
      { title: "Headers", className: "value", of: (row) => h("div", { class: "cut" }, row.headers.map((each) => `${each.key}: ${each.value.text}`).join("\n")) },
    ],
    rows,
    { onRow: (row) => openRecord(name, row), none },
  );
}

function shownValue(value) {
  return h("div", { class: `cut form-${value.form}` }, value.form === "null" ? "null" : value.text + (value.is_truncated ? " …" : ""));
}

export async function openRecord(name, row) {
  const content = h("div", null, h("div", { class: "skeleton" }));
  dialog(`Record ${row.partition}-${row.offset}`, content);
  async function load(form) {
    try {
      const [{ record }, isWritable] = await Promise.all([getJson(path`/topics/${name}/partitions/${row.partition}/records/${row.offset}`, { form }), mayWrite()]);
      fill(content, ...whole(name, record, form, load, isWritable));
    } catch (error) {
      fill(content, notice(error.message, "bad"));
    }
  }
  await load("auto");
}

function whole(name, record, form, load, isWritable) {
  const block = (title, value) => [
    h("h2", null, `${title} `, h("span", { class: "muted small" }, value.form === "null" ? "null" : `${value.form}, ${bytes(value.size)}${value.is_truncated ? ", cut at 1 MiB" : ""}`)),
    value.form === "null" ? null : h("pre", { class: "whole", tabindex: 0 }, value.text),
  ];
  return [
    h("div", { class: "form" },
      h("button", { type: "button", class: form === "auto" ? "on" : "", "data-key": "auto", click: () => load("auto") }, "Text, JSON, schema"),
      h("button", { type: "button", class: form === "hex" ? "on" : "", "data-key": "hex", click: () => load("hex") }, "Hexadecimal"),
      isWritable ? resend(name, record) : null),
    h("dl", { class: "facts" },
      h("dt", null, "Time"), h("dd", null, `${time(record.timestamp_ms)} (${record.timestamp_type})`),
      h("dt", null, "Position"), h("dd", null, `partition ${record.partition}, offset ${record.offset}`),
      h("dt", null, "Batch"), h("dd", null, `codec ${record.codec}${record.producer_id === "-1" ? "" : `, producer id ${record.producer_id}`}${record.is_transactional ? ", transactional" : ""}`)),
    ...block("Key", record.key),
    ...block("Value", record.value),
    record.headers.length
      ? [h("h2", null, `Headers (${record.header_count})`), table("", [{ title: "Name", of: (each) => each.key }, { title: "Value", className: "value", of: (each) => each.value.text }], record.headers)]
      : null,
  ];
}
