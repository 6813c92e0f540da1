// One record with its whole key, value and headers: in a dialog above a list, and as a page with an address.

import { link } from "./address.js";
import { getJson, mayWrite, path } from "./api.js";
import { copyButton, dialog, fill, h, notice } from "./dom.js";
import { bytes, timeWithZone } from "./format.js";
import { resend } from "./produce.js";
import { table } from "./table.js";

export function openRecord(name, partition, offset) {
  const content = h("div", null);
  const opened = dialog(title(partition, offset), content);
  const show = (at) => {
    opened.querySelector("h2").textContent = title(partition, at);
    recordView(content, name, partition, at, show)("auto");
  };
  show(offset);
}

export function recordPage([name, , partition, offset]) {
  const content = h("div", { class: "card" });
  let isRead = false;
  return {
    title: `${name} ${title(partition, offset)}`,
    root: h("div", null,
      h("div", { class: "head" }, h("div", { class: "crumbs" }, h("a", { href: "#/topics" }, "Topics"), " / ", h("a", { href: link`topics/${name}` }, name)), h("h1", null, title(partition, offset))),
      content),
    isRead: () => isRead,
    async refresh() {
      if (!isRead) await recordView(content, name, partition, offset, (at) => (location.hash = link`topics/${name}/records/${partition}/${at}`))("auto");
      isRead = true;
    },
  };
}

function title(partition, offset) {
  return `Record ${partition}-${offset}`;
}

/** Returns a function that reads a record and shows it in `content`; `go(offset)` shows another one of the partition. */
function recordView(content, name, partition, offset, go) {
  return async function load(form) {
    if (!content.hasChildNodes()) fill(content, h("div", { class: "skeleton" }));
    try {
      const [found, isWritable] = await Promise.all([getJson(path`/topics/${name}/partitions/${partition}/records/${offset}`, { form }), mayWrite()]);
      fill(content, buttons(name, found, form, load, go, isWritable), whole(found.record));
    } catch (error) {
      fill(content, notice(error.message, "bad"));
    }
  };
}

function buttons(name, found, form, load, go, isWritable) {
  const { record, previous, next } = found;
  const address = link`topics/${name}/records/${record.partition}/${record.offset}`;
  return h("div", { class: "form" },
    h("button", { type: "button", id: "previous-record", disabled: previous === null, click: () => go(previous) }, "← Previous"),
    h("button", { type: "button", id: "next-record", disabled: next === null, click: () => go(next) }, "Next →"),
    h("button", { type: "button", class: form === "auto" ? "on" : "", "data-key": "auto", click: () => load("auto") }, "Text, JSON, schema"),
    h("button", { type: "button", class: form === "hex" ? "on" : "", "data-key": "hex", click: () => load("hex") }, "Hexadecimal"),
    location.hash === address ? null : h("a", { class: "button", id: "record-link", href: address }, "Link"),
    isWritable ? resend(name, record) : null);
}

function whole(record) {
  return [
    h("dl", { class: "facts" },
      h("dt", null, "Time"), h("dd", null, `${timeWithZone(record.timestamp_ms)} (${record.timestamp_type})`),
      h("dt", null, "Position"), h("dd", null, `partition ${record.partition}, offset ${record.offset}`),
      h("dt", null, "Batch"), h("dd", null, `codec ${record.codec}${record.producer_id === "-1" ? "" : `, producer id ${record.producer_id}`}${record.is_transactional ? ", transactional" : ""}`)),
    block("Key", record.key),
    block("Value", record.value),
    record.headers.length
      ? [h("h2", null, `Headers (${record.header_count})`), table("", [
          { title: "Name", of: (each) => each.key },
          { title: "Value", className: "value", of: (each) => [each.value.form === "null" ? h("span", { class: "form-null" }, "null") : each.value.text, " ", copyButton(`header ${each.key}`, each.value.text)] },
        ], record.headers)]
      : null,
  ];
}

function block(title, value) {
  const facts = [value.form, value.form === "null" ? "" : bytes(value.size), value.problem ? "" : value.schema, value.is_truncated ? "cut at 1 MiB" : ""];
  const isEmpty = value.form === "null" || value.size === 0;
  return [
    h("h2", null, `${title} `, h("span", { class: "muted small" }, facts.filter(Boolean).join(", ")), " ", isEmpty ? null : copyButton(title.toLowerCase(), value.text)),
    value.problem ? notice(`${value.schema}: ${value.problem}`) : null,
    isEmpty ? null : h("pre", { class: "whole", tabindex: 0 }, value.text),
  ];
}
