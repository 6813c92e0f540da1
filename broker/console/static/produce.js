// Produces records, resends stored ones, and sends dead letters back; only when the broker allows the console to write.

import { mayWrite, path, sendJson } from "./api.js";
import { field, fill, h, notice, select, toast } from "./dom.js";
import { table } from "./table.js";

export function produceTab(name) {
  const result = h("div", { role: "status" });
  const partition = h("input", { id: "partition", type: "number", min: 0, placeholder: "by the key" });
  const encoding = select("encoding", [["text", "text"], ["hex", "hexadecimal"]], "text");
  const key = h("input", { id: "key", type: "text", placeholder: "none" });
  const value = h("textarea", { id: "value", spellcheck: "false" });
  const isNull = h("input", { id: "null", type: "checkbox" });
  const headers = h("textarea", { id: "headers", spellcheck: "false", placeholder: "one a line: name: value" });
  const send = h("button", { type: "submit", class: "primary", id: "send" }, "Produce");
  const root = h("div", null, h("div", { class: "skeleton" }));
  let isShown = false;

  async function submit(event) {
    event.preventDefault();
    send.disabled = true;
    try {
      const produced = await sendJson("POST", path`/topics/${name}/records`, {
        partition: partition.value === "" ? -1 : Number(partition.value), key: key.value === "" ? null : key.value, value: isNull.checked ? null : value.value,
        headers: headers.value.split("\n").filter((line) => line.trim()).map((line) => { const at = line.indexOf(":"); return at < 0 ? { key: line.trim(), value: null } : { key: line.slice(0, at).trim(), value: line.slice(at + 1).trim() }; }),
        encoding: encoding.value,
      });
      fill(result, notice(`Produced to partition ${produced.partition} at offset ${produced.offset}.`, "info"));
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
    send.disabled = false;
  }

  const forms = () => h("div", { class: "grid" },
    h("section", { class: "card" }, h("h2", null, "Produce a record"),
      h("form", { submit },
        h("div", { class: "form" }, field("Partition", partition), field("Key", key, "wide"), field("Key and value as", encoding)),
        field("Value", value, "wide"), h("p", null, h("label", { class: "line" }, isNull, "no value (a tombstone)")),
        field("Headers", headers, "wide"), h("p", null, send), result)),
    deadLetters(name));

  return {
    root,
    isRead: () => isShown,
    async refresh() {
      if (isShown) return;
      const isEnabled = await mayWrite();
      isShown = true;
      fill(root, isEnabled ? forms() : notice("The console is read-only. Set console.write.enable=true to produce records.", "info"));
    },
  };
}

function deadLetters(name) {
  const result = h("div", { role: "status" });
  const header = h("input", { id: "dead-header", type: "text", placeholder: "that of Spring, Connect and others" });
  const records = h("textarea", { id: "dead-records", placeholder: "one a line: partition offset" });
  async function submit(event) {
    event.preventDefault();
    try {
      const references = records.value.split("\n").map((line) => line.trim()).filter(Boolean).map(reference);
      const sent = await sendJson("POST", path`/topics/${name}/resend`, { records: references, topic: "", header: header.value });
      fill(result, resentTable(sent.records));
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
  }
  return h("section", { class: "card" }, h("h2", null, "Send dead letters back"),
    h("p", { class: "muted small" }, "Each record is produced again, as it is, to the topic that its header names."),
    h("form", { submit }, field("Header with the topic", header, "wide"), field("Records", records, "wide"), h("p", null, h("button", { type: "submit", id: "redrive" }, "Send back")), result));
}

/** A line with a partition and an offset. */
function reference(line) {
  const parts = line.split(/[\s:,-]+/);
  if (parts.length !== 2 || !parts.every((part) => /^\d{1,15}$/.test(part))) throw new Error(`${JSON.stringify(line)}: expected a partition and an offset.`);
  return { partition: Number(parts[0]), offset: Number(parts[1]) };
}

function resentTable(rows) {
  return table("", [
    { title: "Record", of: (row) => `${row.partition}-${row.offset}` },
    { title: "Result", of: (row) => row.problem || `${row.topic}, partition ${row.produced_partition}, offset ${row.produced_offset}` },
  ], rows);
}

/** Headers in which common frameworks note the topic of a dead letter, as the broker knows them. */
const TOPIC_HEADERS = ["kafka_dlt-original-topic", "__connect.errors.topic", "x-original-topic", "original-topic"];

/** Buttons that produce a stored record again: to a topic, or to that from which a dead letter comes. */
export function resend(name, record) {
  const target = h("input", { id: "resend-topic", type: "text", value: name, "aria-label": "Topic to resend to" });
  const origin = TOPIC_HEADERS.map((header) => record.headers.find((each) => each.key === header)?.value.text).find(Boolean);
  async function send(topic) {
    try {
      const sent = await sendJson("POST", path`/topics/${name}/resend`, { records: [{ partition: record.partition, offset: Number(record.offset) }], topic, header: "" });
      const [row] = sent.records;
      toast(row.problem || `Produced to ${row.topic}, partition ${row.produced_partition}, offset ${row.produced_offset}.`);
    } catch (error) {
      toast(error.message);
    }
  }
  return [
    origin ? h("button", { type: "button", id: "send-back", click: () => send("") }, `Send back to ${origin}`) : null,
    h("button", { type: "button", id: "resend", click: () => send(target.value) }, "Resend to"), target,
  ];
}
