// Copies a new key or its curl line, and says so to people who do not see the button change.
"use strict";

for (const button of document.querySelectorAll(".rl-copy")) {
  if (navigator.clipboard) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = button.dataset.copied;
      document.getElementById("rl-copy-status").textContent = button.dataset.copied;
    });
  }
}
