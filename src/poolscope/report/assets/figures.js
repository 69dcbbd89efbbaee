"use strict";
// Figures: drawn in the colours and the width of the page, downloaded as they were made.
(function (poolscope) {
  const { element, csv, download, fileName, figureRows, picture } = poolscope;
  const NARROW = 560; // below this width panels stand one under the other
  const LINE = 22; // height of a line of the legend, in pixels
  const CONFIG = { displayModeBar: false, showTips: false };
  const charts = [];

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"),
      muted: read("--muted"),
      line: read("--line"),
      grid: read("--grid"),
      card: read("--card"),
      dark: read("--dark") === "1",
    };
  }

  const lighter = (part) => Math.round(Number(part) + 0.3 * (255 - Number(part)));

  // Colours were chosen for white paper. On dark ground greys change places with their opposites, and others are lighter.
  function turned(value) {
    if (Array.isArray(value)) return value.map(turned);
    if (value && typeof value === "object") return recoloured(value);
    if (typeof value !== "string") return value;
    const named = { white: "#ffffff", black: "#000000" }[value] || value;
    const full = /^#[0-9a-f]{3}$/i.test(named) ? named.replace(/[0-9a-f]/gi, "$&$&") : named;
    const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(full);
    const rgba = /^rgba?\((\d+), ?(\d+), ?(\d+)(?:, ?([\d.]+))?\)$/.exec(value);
    if (!hex && !rgba) return value;
    const parts = hex ? hex.slice(1).map((pair) => parseInt(pair, 16)) : rgba.slice(1, 4).map(Number);
    const grey = parts[0] === parts[1] && parts[1] === parts[2];
    const shown = grey ? parts.map((part) => Math.round(24 + (231 * (255 - part)) / 255)) : parts.map(lighter);
    return `rgba(${shown.join(",")},${rgba && rgba[4] ? rgba[4] : 1})`;
  }

  function recoloured(part) {
    const made = Array.isArray(part) ? [] : {};
    for (const [key, value] of Object.entries(part)) {
      if (/color$/i.test(key)) made[key] = turned(value);
      else
        made[key] =
          value &&
          typeof value === "object" &&
          !ArrayBuffer.isView(value) &&
          !(Array.isArray(value) && typeof value[0] !== "object")
            ? recoloured(value)
            : value;
    }
    return made;
  }

  const axesOf = (layout, letter) => Object.keys(layout).filter((key) => new RegExp(`^${letter}axis\\d*$`).test(key));

  // The panels of a figure: for each vertical axis its own domain and that of the axis under it.
  function panels(layout) {
    return axesOf(layout, "y")
      .map((y) => {
        const x = "xaxis" + (layout[y].anchor || "x").slice(1);
        return { x, y, wide: (layout[x] || {}).domain || [0, 1], high: layout[y].domain || [0, 1] };
      })
      .filter((panel) => layout[panel.x] && !layout[panel.y].overlaying);
  }

  // One column of panels instead of several; their titles (annotations placed on the paper) move with them.
  function stacked(layout, found) {
    const ordered = [...found].sort((a, b) => b.high[1] - a.high[1] || a.wide[0] - b.wide[0]);
    const step = 1 / ordered.length;
    const notes = layout.annotations || [];
    ordered.forEach((panel, k) => {
      const top = 1 - k * step - (k ? step * 0.1 : 0);
      const bottom = 1 - (k + 1) * step + step * 0.16;
      for (const note of notes) {
        const inside =
          note.xref === "paper" &&
          note.yref === "paper" &&
          !note.moved &&
          note.x >= panel.wide[0] - 1e-6 &&
          note.x <= panel.wide[1] + 1e-6 &&
          note.y >= panel.high[0] - 1e-6 &&
          note.y <= panel.high[1] + 0.06;
        if (!inside) continue;
        note.x = (note.x - panel.wide[0]) / (panel.wide[1] - panel.wide[0]);
        note.y = top + (note.y - panel.high[1]);
        note.moved = true;
      }
      layout[panel.x].domain = [0, 1];
      layout[panel.y].domain = [bottom, top];
    });
    for (const note of notes) delete note.moved;
    return 250 * ordered.length;
  }

  function legendLines(data, layout, width) {
    const named = data.filter((trace) => trace.showlegend !== false && trace.name);
    if (layout.showlegend === false || (named.length < 2 && !named.some((trace) => trace.showlegend))) return 0;
    if ((layout.legend || {}).orientation === "v") return named.length;
    let lines = 1;
    let used = 0;
    for (const trace of named) {
      const size = 48 + 7 * trace.name.length;
      if (used && used + size > width - 80) {
        lines += 1;
        used = 0;
      }
      used += size;
    }
    return lines;
  }

  // The figure as the page shows it: without its title (that is the caption), in the width that there is.
  function dressed(figure, width, look) {
    const source = look.dark ? recoloured(figure) : figure;
    const layout = structuredClone(source.layout);
    const wanted = (layout.height || 420) - (layout.title ? 60 : 0);
    const found = panels(layout);
    const narrow = width < NARROW;
    const rows = new Set(found.map((panel) => panel.high[0])).size;
    let height = layout.width ? wanted * Math.min(1, Math.max(rows > 1 ? 0.9 : 0.66, width / layout.width)) : wanted;
    if (narrow && new Set(found.map((panel) => panel.wide[0])).size > 1) height = stacked(layout, found);
    else if (narrow) height = Math.min(height, 360);
    else height += 40 * (rows - 1); // air between rows of panels
    const lines = legendLines(source.data, layout, width);
    const titled = (layout.annotations || []).some((note) => note.yref === "paper" && note.y >= 0.9);
    delete layout.title;
    Object.assign(layout, {
      autosize: false,
      width,
      height: Math.round(height + lines * LINE),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: {
        family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
        size: narrow ? 12 : 13,
        color: look.ink,
      },
      margin: { l: narrow ? 46 : 60, r: 12, t: 10 + lines * LINE + (titled ? 30 : 0), b: 46 },
      hoverlabel: { bgcolor: look.card, bordercolor: look.line, font: { color: look.ink } },
      colorway: layout.colorway || poolscope.colorway,
      dragmode: matchMedia("(pointer: coarse)").matches ? false : layout.dragmode || "zoom",
    });
    layout.legend = {
      ...layout.legend,
      x: 0,
      y: 1,
      xanchor: "left",
      yanchor: "top",
      xref: "container",
      yref: "container",
      bgcolor: "rgba(0,0,0,0)",
    };
    for (const key of [...axesOf(layout, "x"), ...axesOf(layout, "y")]) {
      Object.assign(layout[key], {
        gridcolor: look.grid,
        linecolor: look.line,
        tickcolor: look.line,
        zerolinecolor: look.grid,
        automargin: true,
      });
    }
    for (const note of layout.annotations || []) if (narrow && (note.font || {}).size > 14) note.font.size = 14;
    return { data: source.data, layout };
  }

  // A figure with its caption and its downloads. `rows` gives the data as columns and rows where the traces do not say it.
  function chart(host, figure, { rows = null, page, drawn = null }) {
    const plot = element("div", { class: "plot" });
    const status = element("span", { class: "status", role: "status" });
    const own = { figure, plot };
    const save = async (kind) => {
      status.textContent = "";
      const name = fileName(page, own.figure.name);
      try {
        if (kind === "csv") download(`${name}.csv`, "text/csv", csv(...(rows ? rows() : figureRows(own.figure))));
        else
          download(`${name}.${kind}`, kind === "svg" ? "image/svg+xml" : "image/png", await picture(own.figure, kind));
      } catch (error) {
        status.textContent = `The file could not be made: ${error.message}`;
      }
    };
    const buttons = ["svg", "png", "csv"].map((kind) =>
      element(
        "button",
        {
          type: "button",
          class: "quiet",
          "data-download": kind,
          "aria-label": `Download ${figure.name} as ${kind.toUpperCase()}`,
          onclick: () => save(kind),
        },
        kind.toUpperCase(),
      ),
    );
    const note = element("span", { class: "figure-note" });
    const caption = element("figcaption", null, element("strong", null, figure.name), note);
    host.append(
      element("figure", { class: "chart" }, caption, plot, element("div", { class: "downloads" }, status, ...buttons)),
    );
    own.draw = (width) => {
      const room = Math.floor(width || plot.clientWidth);
      if (!room) return;
      own.width = room;
      note.textContent = own.figure.title === own.figure.name ? "" : own.figure.title;
      const shown = dressed(own.figure, room, colours());
      Plotly.react(plot, shown.data, shown.layout, CONFIG);
      if (drawn) drawn(plot);
    };
    charts.push(own);
    return own;
  }

  const redraw = (width) => charts.forEach((one) => one.draw(width));

  function followWidth() {
    let waiting = null;
    const changed = () => {
      clearTimeout(waiting);
      waiting = setTimeout(
        () => charts.forEach((one) => Math.abs(one.plot.clientWidth - (one.width || 0)) > 1 && one.draw()),
        120,
      );
    };
    addEventListener("resize", changed);
  }

  Object.assign(poolscope, { chart, charts, redraw, followWidth });
})(window.poolscope);
