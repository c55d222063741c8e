// Keeps the overview fresh: fetches the page again and swaps the parts that live.
// A part that has the focus or a selection in it is left alone; nothing is announced; it can be paused.
"use strict";

(() => {
  const root = document.getElementById("rl-overview");
  if (!root) {
    return;
  }
  let paused = false;
  let asking = false;

  const button = document.createElement("button");
  button.type = "button";
  button.className = "rl-pause";
  button.textContent = root.dataset.pause;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? root.dataset.resume : root.dataset.pause;
  });
  root.querySelector(".rl-head").append(button);

  // On a narrow screen the newest bars come first.
  const chart = root.querySelector("#rl-chart .rl-scroll");
  chart.scrollLeft = chart.scrollWidth;

  const inUse = (part) => {
    const selection = document.getSelection();
    const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return part.contains(document.activeElement) || selects;
  };

  const swap = (old, fresh) => {
    fresh.querySelectorAll("details[id]").forEach((details) => {
      const before = document.getElementById(details.id);
      details.open = Boolean(before && before.open);
    });
    const scrolled = [...old.querySelectorAll(".rl-scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".rl-scroll").forEach((box, number) => {
      [box.scrollLeft, box.scrollTop] = scrolled[number] || [0, 0];
    });
  };

  const refresh = async () => {
    if (paused || asking || document.hidden) {
      return;
    }
    asking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) {
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("rl-overview");
      if (!fresh) {
        return;
      }
      fresh.querySelectorAll(".rl-live").forEach((part) => {
        const old = document.getElementById(part.id);
        if (old && !inUse(old)) {
          swap(old, part);
        }
      });
    } catch {
      // The server is away or the session ended: what is shown stays, with its own time on it.
    } finally {
      asking = false;
    }
  };

  setInterval(refresh, Number(root.dataset.refreshSeconds) * 1000);
})();
