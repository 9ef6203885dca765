// What pages gain where scripts run: they keep themselves up to date, times are told as people read
// them, and curves can be asked for their values.  Without it all figures are there as well.
"use strict";

(() => {
  const main = document.getElementById("main");
  const away = document.getElementById("away");

  // ------------------------------------------------------------------- times
  const STEPS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

  function tellTimes() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = (new Date(time.dateTime) - Date.now()) / 1000;
      const [size, unit] = STEPS.find(([size]) => Math.abs(seconds) >= size) ?? [1, "second"];
      time.textContent = relative.format(Math.round(seconds / size), unit);
    }
  }

  // ------------------------------------------------------------------ curves
  const drawn = new Map(); // from figures to their plots

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function draw(figure) {
    const curve = JSON.parse(figure.dataset.curve);
    const ink = colour("--soft");
    const grid = { stroke: colour("--rule"), width: 1 };
    const series = curve.series.map((name, number) => ({
      label: name, stroke: colour(`--c${number % 6 + 1}`), width: 2, points: { show: false },
      fill: curve.series.length === 1 ? colour("--c1") + "30" : undefined,
    }));
    const shade = (plot) => {
      if (curve.tail === null) return;
      const left = Math.max(plot.bbox.left, plot.valToPos(curve.tail, "x", true));
      plot.ctx.fillStyle = colour("--warn-page");
      plot.ctx.fillRect(left, plot.bbox.top, plot.bbox.left + plot.bbox.width - left, plot.bbox.height);
    };
    const marks = (plot) => {
      plot.ctx.strokeStyle = colour("--c4");
      plot.ctx.setLineDash([4, 4]);
      for (const mark of curve.marks) {
        const x = plot.valToPos(mark, "x", true);
        if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
        plot.ctx.beginPath();
        plot.ctx.moveTo(x, plot.bbox.top);
        plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
        plot.ctx.stroke();
      }
      plot.ctx.setLineDash([]);
    };
    const span = curve.data[0].at(-1) - curve.data[0][0];
    const moment = (seconds) => new Date(seconds * 1000).toLocaleString(undefined, span > 172800
      ? { month: "short", day: "numeric", hour: "2-digit", hour12: false }
      : { hour: "2-digit", minute: "2-digit", hour12: false });
    figure.querySelector(".uplot")?.remove();
    const plot = new uPlot({
      width: Math.max(240, figure.clientWidth), height: 220, 
      series: [{ label: "at", value: (_plot, seconds) => seconds === null ? "–" : moment(seconds) }, ...series],
      axes: [{ stroke: ink, grid, ticks: grid, values: (_plot, times) => times.map(moment) }, { stroke: ink, grid, ticks: grid, size: 56 }],
      scales: { y: { range: (_plot, _least, most) => [0, Math.max(1, most * 1.05)] } },
      hooks: { drawClear: [shade], draw: [marks] },
    }, curve.data, figure);
    figure.classList.add("drawn");
    drawn.set(figure, plot);
  }

  function drawAll() {
    if (typeof uPlot === "undefined") return;
    for (const figure of drawn.keys()) if (!figure.isConnected) drawn.delete(figure);
    for (const figure of document.querySelectorAll("figure[data-curve]")) if (!drawn.has(figure)) draw(figure);
  }

  function redraw() {
    for (const figure of [...drawn.keys()]) draw(figure);
  }

  // -------------------------------------------------------------------- live
  const known = new Map(); // the parts of the page as the server told them

  function partsOf(root) {
    return [...root.querySelectorAll("[data-part]")];
  }

  function isBusy(part) {
    const field = part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
    return field || part.querySelector("details[open] form") !== null;
  }

  function isAtEnd(log) {
    return log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  }

  // Logs that grow stay at their ends, unless somebody reads further up.
  function showLogs(root, places = new Map()) {
    for (const log of root.querySelectorAll("[data-tail]")) {
      log.scrollTop = Math.min(places.get(log.dataset.tail) ?? Infinity, log.scrollHeight);
    }
  }

  function exchange(old, fresh) {
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? [...old.querySelectorAll("a, button, summary, [tabindex]")].indexOf(focused) : -1;
    const scrolled = [...old.querySelectorAll(".wide")].map((wide) => wide.scrollLeft);
    const logs = [...old.querySelectorAll("[data-tail]")];
    const places = new Map(logs.map((log) => [log.dataset.tail, isAtEnd(log) ? Infinity : log.scrollTop]));
    old.replaceWith(fresh);
    showLogs(fresh, places);
    fresh.querySelectorAll(".wide").forEach((wide, number) => { wide.scrollLeft = scrolled[number] ?? 0; });
    if (place >= 0) fresh.querySelectorAll("a, button, summary, [tabindex]")[place]?.focus({ preventScroll: true });
  }

  // Puts in what is new, and leaves alone what stayed or is being used.
  function update(html) {
    const fresh = new DOMParser().parseFromString(`<main>${html}</main>`, "text/html").querySelector("main");
    const names = partsOf(fresh).map((part) => part.dataset.part).join();
    const shown = partsOf(main);
    if (names !== shown.map((part) => part.dataset.part).join()) {
      if (shown.some(isBusy)) return false;
      main.replaceChildren(...fresh.childNodes);
      remember();
      showLogs(main);
    } else {
      const old = new Map(shown.map((part) => [part.dataset.part, part]));
      for (const part of partsOf(fresh)) {
        const name = part.dataset.part;
        if (part.outerHTML === known.get(name)) continue;
        if (isBusy(old.get(name))) continue;
        known.set(name, part.outerHTML);
        exchange(old.get(name), part);
      }
    }
    document.title = main.querySelector("[data-title]")?.dataset.title ?? document.title;
    tellTimes();
    drawAll();
    return true;
  }

  function remember() {
    known.clear();
    for (const part of partsOf(main)) known.set(part.dataset.part, part.outerHTML);
  }

  function say(text) {
    away.textContent = text;
    away.hidden = !text;
  }

  let etag = main.dataset.etag;
  let failures = 0;

  async function poll() {
    const answer = await fetch(`${location.pathname}?live`, {
      headers: { "If-None-Match": etag, Accept: "text/html" }, cache: "no-store", redirect: "error",
    });
    if (answer.status === 401) return say("You are logged out. Reload the page to log in.");
    if (answer.status === 200 && update(await answer.text())) etag = answer.headers.get("ETag");
    if (answer.status === 404) return say("This is no longer there.");
    if (answer.status >= 500) throw new Error(`${answer.status}`);
    failures = 0;
    say("");
  }

  async function live(seconds) {
    for (;;) {
      const pace = Number(main.querySelector("[data-poll]")?.dataset.poll ?? seconds);
      const wait = pace * 1000 * (0.9 + 0.2 * Math.random()) * Math.min(10, 1 + failures);
      await new Promise((wake) => setTimeout(wake, wait));
      if (document.hidden) await new Promise((wake) => document.addEventListener("visibilitychange", wake, { once: true }));
      try {
        await poll();
      } catch {
        failures += 1;
        if (failures > 1) say("The server does not answer. This page shows what it last said.");
      }
    }
  }

  remember();
  tellTimes();
  drawAll();
  showLogs(main);
  setInterval(tellTimes, 20000);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let resizing;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 200); });
  if (main.dataset.live) live(Number(main.dataset.live));
})();
