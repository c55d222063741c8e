// Keeps an open page fresh: asks its own address for JSON, swaps the parts that live, and hands on what charts draw.
// A part that has the focus or a selection in it is left alone; nothing is announced but a failure; it can be paused.
"use strict";

(() => {
  const root = document.getElementById("rl-page");
  if (!root) {
    return;
  }
  const pause = root.querySelector(".rl-pause");
  const stale = document.getElementById("rl-stale");
  let paused = "paused" in root.dataset;
  let asking = false;

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
      const answer = await fetch(location.href, {
        credentials: "same-origin",
        headers: { Accept: "application/json" },
        redirect: "error",
      });
      if (!answer.ok) {
        throw new Error(answer.statusText);
      }
      const { html, charts } = await answer.json();
      if (paused) {
        return;
      }
      const page = new DOMParser().parseFromString(html, "text/html");
      page.querySelectorAll(".rl-live").forEach((part) => {
        const old = document.getElementById(part.id);
        if (old && !inUse(old)) {
          swap(old, part);
        }
      });
      document.dispatchEvent(new CustomEvent("rl-charts", { detail: charts }));
      stale.textContent = "";
    } catch {
      // The server is away or the session ended: what is shown stays, with its own time on it.
      stale.textContent = stale.dataset.text;
    } finally {
      asking = false;
    }
  };

  // Pausing is part of the address, and of the links and forms that lead on from here.
  const remember = () => {
    const mark = (address) => {
      const url = new URL(address, location.href);
      if (paused) {
        url.searchParams.set("paused", "1");
      } else {
        url.searchParams.delete("paused");
      }
      return url;
    };
    history.replaceState(history.state, "", mark(location.href));
    root.querySelectorAll("a.rl-keeps").forEach((link) => {
      link.href = mark(link.href);
    });
    root.querySelectorAll("form.rl-filter").forEach((form) => {
      form.querySelectorAll("input[name=paused]").forEach((input) => input.remove());
      if (paused) {
        const input = document.createElement("input");
        Object.assign(input, { type: "hidden", name: "paused", value: "1" });
        form.append(input);
      }
    });
  };

  if (!("live" in root.dataset)) {
    return; // a span in the past stays as it is
  }
  pause.hidden = false;
  pause.setAttribute("role", "button");
  const toggle = (event) => {
    event.preventDefault();
    paused = !paused;
    pause.textContent = paused ? pause.dataset.resume : pause.dataset.pause;
    remember();
    refresh();
  };
  pause.addEventListener("click", toggle);
  pause.addEventListener("keydown", (event) => {
    if (event.key === " ") {
      toggle(event);
    }
  });
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, Number(root.dataset.refreshSeconds) * 1000);
})();
