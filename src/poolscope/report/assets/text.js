"use strict";
// Elements, texts, numbers, CSV and downloads. Texts of a corpus become text nodes here and nothing else.
window.poolscope = {};
(function (poolscope) {
  const FOLDED = 160; // characters of a text in a table before "show all"

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  // Control characters are shown as their pictures; tab and line feed stay what they are.
  function readable(text) {
    return text
      .replace(/[\u0000-\u0008\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
      .replace(/\u007f/g, "\u2421");
  }

  const whole = (value) => value.toLocaleString("en-US");

  // A text of the corpus is a string or, where only a part of it is in the page, {text, length, start}.
  function kept(value) {
    return typeof value === "string" ? { text: value, length: null, start: 0 } : value;
  }

  const cutNote = (words) => element("span", { class: "cut" }, words);

  function cutMark(value) {
    const { text, length } = kept(value);
    if (length === null) return null;
    return cutNote(`… cut: ${whole(Array.from(text).length)} of ${whole(length)} characters are in this page`);
  }

  // Isolated, so that right-to-left letters and marks in it cannot turn what stands around it.
  function corpusText(value) {
    const { text } = kept(value);
    const letters = Array.from(text);
    const body = element("bdi", { class: "corpus", dir: "auto" }, readable(text));
    const shown = element("div", { class: "cell-text" }, body);
    const mark = cutMark(value);
    if (letters.length <= 1.4 * FOLDED) {
      // so little more is not worth a button
      if (mark) shown.append(" ", mark);
      return shown;
    }
    const more = element("button", { type: "button", class: "quiet fold", "aria-expanded": "false" });
    const set = (open) => {
      body.textContent = readable(open ? text : letters.slice(0, FOLDED).join("") + "…");
      body.classList.toggle("folded", !open); // a folded text is one paragraph
      more.textContent = open ? "show less" : `show all ${whole(letters.length)} characters`;
      more.setAttribute("aria-expanded", String(open));
      if (mark) mark.hidden = !open;
    };
    more.addEventListener("click", () => set(more.getAttribute("aria-expanded") === "false"));
    set(false);
    shown.append(
      " ",
      ...(mark ? [mark, " "] : []),
      more,
      element("small", { class: "on-paper" }, `[${whole(letters.length)} characters]`),
    );
    return shown;
  }

  // What is nearer to zero than this is rounding, and written 0.
  const TINY = 1e-9;

  // Digits after the point, so that three digits or so are seen of a number of this size.
  function digitsOf(size) {
    if (size < TINY) return 0;
    return size >= 1000 ? 0 : size >= 1 ? 2 : Math.min(3 - Math.floor(Math.log10(size)) - 1, 8);
  }

  function number(value, digits = null) {
    if (value === null) return "–";
    const after = digits !== null ? digits : Number.isInteger(value) ? 0 : digitsOf(Math.abs(value));
    return (Math.abs(value) < TINY ? 0 : value)
      .toLocaleString("en-US", { minimumFractionDigits: after, maximumFractionDigits: after })
      .replace("-", "−");
  }

  // "0.52 [0.41, 0.63]": a number and the ends of its interval, all with the digits of the largest.
  function numberWithInterval(value, low, high) {
    if (low === null || high === null) return [number(value), null];
    const digits = digitsOf(Math.max(...[value, low, high].map(Math.abs)));
    return [number(value, digits), `[${number(low, digits)}, ${number(high, digits)}]`];
  }

  // A spreadsheet runs a cell that begins with one of these signs; an apostrophe before it makes it a text.
  function csvCell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number" || typeof value === "boolean") return String(value);
    const text = typeof value === "string" ? value : value.text;
    const safe = /^[\s\u0000-\u001f]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/.test(text) ? "'" + text : text;
    return /[",\r\n']|^\s|\s$/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  }

  function csv(columns, rows) {
    // The mark at the beginning tells spreadsheets that this is Unicode.
    return "\ufeff" + [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
  }

  function download(name, type, content) {
    const address = URL.createObjectURL(new Blob([content], { type }));
    const link = element("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  }

  function fileName(...parts) {
    const plain = parts.map((part) =>
      part
        .normalize("NFKD")
        .toLowerCase()
        .replace(/[^a-z0-9]+/g, "-")
        .replace(/^-|-$/g, ""),
    );
    return plain.filter(Boolean).join("-").slice(0, 90) || "poolscope";
  }

  Object.assign(poolscope, {
    element,
    readable,
    whole,
    kept,
    cutNote,
    cutMark,
    corpusText,
    number,
    numberWithInterval,
    csv,
    download,
    fileName,
  });
})(window.poolscope);
