"use strict";
// Where the panels of a figure stand, and how their titles fit: rows and columns get the room that their words need.
(function (poolscope) {
  const LETTER = 7.4; // width of a letter of an axis title in pixels, in a wide font
  const LINE = 17; // height of a line of words
  const TICKS = 26; // room for the labels of ticks below a panel
  const PLOT = { least: 170, most: 420, phone: 200 };

  const visible = (text) => text.replace(/<[^>]*>/g, "").replace(/&\w+;/g, "x").length;

  function brokenLine(words, letters) {
    const lines = [];
    for (const word of words) {
      const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
      if (lines.length && visible(longer) <= letters) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  }

  // The text broken at blanks into lines of at most so many letters, about equally long; tags count nothing.
  function wrapped(text, letters) {
    const broken = text.split(/<br\s*\/?>/i).map((line) => {
      const words = line.match(/(?:<[^>]*>|[^\s<])+/g) || [];
      const lines = brokenLine(words, letters);
      const even = brokenLine(words, Math.min(letters, Math.ceil(visible(line) / lines.length) + 3));
      return (even.length > lines.length ? lines : even).join("<br>");
    });
    return broken.join("<br>");
  }

  const linesOf = (text) => (text ? text.split("<br>").length : 0);
  const titleOf = (axis) => (axis.title && axis.title.text) || "";

  function wrapTitle(axis, pixels) {
    if (titleOf(axis)) axis.title = { ...axis.title, text: wrapped(titleOf(axis), Math.max(pixels / LETTER, 8)) };
    return linesOf(titleOf(axis));
  }

  const axesOf = (layout, letter) => Object.keys(layout).filter((key) => new RegExp(`^${letter}axis\\d*$`).test(key));

  // The panels of a figure that hold something: for each vertical axis its own domain and that of the axis under it,
  // and the words above.
  function panelsOf(data, layout) {
    const used = new Set(data.map((trace) => trace.yaxis || "y"));
    const found = axesOf(layout, "y")
      .map((y) => {
        const x = "xaxis" + (layout[y].anchor || "x").slice(1);
        return { x, y, wide: (layout[x] || {}).domain || [0, 1], high: layout[y].domain || [0, 1], notes: [] };
      })
      .filter(({ x, y }) => layout[x] && !layout[y].overlaying && used.has("y" + y.slice(5)));
    for (const note of layout.annotations || []) {
      if (note.xref !== "paper" || note.yref !== "paper") continue;
      const owner = found.find(
        ({ wide, high }) =>
          note.x >= wide[0] - 1e-6 && note.x <= wide[1] + 1e-6 && Math.abs(note.y - high[1]) < 0.06 && note.y >= high[1] - 1e-6,
      );
      if (owner) owner.notes.push(note);
    }
    return found;
  }

  // Rows of panels from above, each from left to right; on a phone a row each. Null where panels form no rows.
  function rowsOf(found, narrow) {
    const ordered = [...found].sort((a, b) => b.high[1] - a.high[1] || a.wide[0] - b.wide[0]);
    if (narrow) return ordered.map((panel) => [panel]);
    const rows = [];
    for (const panel of ordered) {
      const last = rows.at(-1);
      if (last && Math.abs(last[0].high[1] - panel.high[1]) < 1e-3) last.push(panel);
      else rows.push([panel]);
    }
    const apart = rows.every((row, k) => !k || row[0].high[1] <= rows[k - 1][0].high[0] + 1e-3);
    const even = rows.every((row) => row.every((panel) => Math.abs(panel.high[0] - row[0].high[0]) < 1e-3));
    return apart && even ? rows : null;
  }

  // Give columns the room that the titles of their vertical axes need; on a phone every panel has the whole width.
  function spreadColumns(layout, rows, width, plots) {
    const lines = rows.map((row, k) => row.map((panel) => wrapTitle(layout[panel.y], plots[k])));
    const panels = rows.flat();
    if (rows.every((row) => row.length === 1)) {
      for (const panel of panels) layout[panel.x].domain = [0, 1];
      return;
    }
    const starts = [...new Set(panels.map((panel) => Math.round(1e4 * panel.wide[0])))].sort((a, b) => a - b);
    const gap = (52 + LINE * Math.max(...lines.flat())) / width;
    const size = (1 - gap * (starts.length - 1)) / starts.length;
    for (const panel of panels) {
      const first = starts.indexOf(Math.round(1e4 * panel.wide[0]));
      const spanned = starts.filter((start) => start / 1e4 > panel.wide[0] + 1e-3 && start / 1e4 < panel.wide[1]).length;
      const left = first * (size + gap);
      layout[panel.x].domain = [left, Math.min(left + size + spanned * (size + gap), 1)];
    }
  }

  function moveNotes(panel, wide, top) {
    for (const note of panel.notes) {
      const share = (note.x - panel.wide[0]) / (panel.wide[1] - panel.wide[0]);
      Object.assign(note, { x: wide[0] + share * (wide[1] - wide[0]), y: top, yanchor: "bottom" });
    }
  }

  const namesOn = (data, letter, key) => {
    const own = letter + key.slice(5);
    const values = data.filter((trace) => (trace[`${letter}axis`] || letter) === own).flatMap((trace) => trace[letter]);
    return [...new Set(values.filter((value) => typeof value === "string" && !isFinite(value)))];
  };

  // Room for the labels of the ticks of a horizontal axis. Names that do not fit side by side are turned, here and not by
  // plotly, so that what stands below knows of it.
  function tickRoom(data, layout, x, pixels) {
    const names = namesOn(data, "x", x);
    const letters = Math.max(0, ...names.map(visible));
    if (!names.length || names.length * (letters + 1) * LETTER <= pixels) return TICKS;
    const angle = pixels / names.length > 2 * LINE ? 30 : 90;
    layout[x].tickangle = angle;
    return TICKS + Math.round(letters * LETTER * Math.sin((angle * Math.PI) / 180));
  }

  // Put the panels of a figure in place; what it takes above and below them, and its height. Null: leave it as it is.
  function arranged(data, layout, width, narrow) {
    const found = panelsOf(data, layout);
    const rows = found.length > 1 ? rowsOf(found, narrow) : null;
    if (!rows) {
      for (const { x, y } of found) {
        wrapTitle(layout[x], width - 70);
        wrapTitle(layout[y], 240);
      }
      return null;
    }
    const inside = (layout.height || 420) - ((layout.margin || {}).t ?? 100) - ((layout.margin || {}).b ?? 80);
    const tall = ({ high }) => Math.min(Math.max((high[1] - high[0]) * inside, PLOT.least), PLOT.most);
    const plots = rows.map((row) => (narrow ? PLOT.phone : Math.round(tall(row[0]))));
    spreadColumns(layout, rows, width - 72, plots);
    const above = [];
    const below = [];
    rows.forEach((row) => {
      const rooms = row.map(({ x }) => (layout[x].domain[1] - layout[x].domain[0]) * (width - 72));
      row.forEach((panel, k) =>
        panel.notes.forEach((note) => (note.text = wrapped(note.text, Math.max(rooms[k] / LETTER, 8)))),
      );
      above.push(Math.max(...row.map(({ notes }) => (notes.length ? 12 + LINE * Math.max(...notes.map((n) => linesOf(n.text))) : 10))));
      below.push(
        Math.max(...row.map(({ x }, k) => tickRoom(data, layout, x, rooms[k]) + LINE * wrapTitle(layout[x], rooms[k]))),
      );
    });
    const gaps = rows.slice(1).map((_, k) => below[k] + above[k + 1] + 6);
    const total = plots.reduce((sum, plot) => sum + plot, 0) + gaps.reduce((sum, gap) => sum + gap, 0);
    let used = 0;
    rows.forEach((row, k) => {
      const domain = [1 - (used + plots[k]) / total, 1 - used / total].map((share) => Math.min(Math.max(share, 0), 1));
      for (const panel of row) {
        layout[panel.y].domain = domain;
        moveNotes(panel, layout[panel.x].domain, domain[1]);
      }
      used += plots[k] + (gaps[k] || 0);
    });
    return { above: above[0], below: below.at(-1) + 8, total };
  }

  // A label of a tick in few short lines; tags and entities stay whole.
  function shortLabel(text, letters) {
    const cut = (line) => {
      const signs = line.match(/&\w+;|<[^>]*>|./gsu) || [];
      return visible(line) <= letters + 2 ? line : `${signs.slice(0, letters).join("")}…`;
    };
    const lines = wrapped(text, letters).split("<br>").map(cut);
    return (lines.length > 3 ? [...lines.slice(0, 2), `${lines[2]} …`] : lines).join("<br>");
  }

  // Names on axes: long ones are broken or cut, because margins that grow with them leave no room for the figure.
  // Returns how many lines the longest name of a vertical axis has.
  function shortenNames(data, layout, narrow) {
    let most = 1;
    for (const letter of ["x", "y"]) {
      const letters = letter === "x" ? 24 : narrow ? 16 : 44;
      for (const key of axesOf(layout, letter)) {
        const names = namesOn(data, letter, key);
        const shown = names.map((name) => shortLabel(name, letters));
        if (letter === "y") most = Math.max(most, ...shown.map(linesOf));
        if (!layout[key].tickvals && shown.some((name, k) => name !== names[k]))
          Object.assign(layout[key], { tickmode: "array", tickvals: names, ticktext: shown });
      }
    }
    return most;
  }

  Object.assign(poolscope, { arranged, axesOf, shortenNames, wrapped });
})(window.poolscope);
