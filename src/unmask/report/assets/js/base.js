"use strict";
// Small helpers. All text enters the page as text, never as markup.
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

function element(name, options = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") found.textContent = value;
    else if (key === "class") found.className = value;
    else found.setAttribute(key, value);
  }
  found.append(...children);
  return found;
}

// The page holds no address at all, so the namespace of drawings is asked of the browser.
const drawings = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

function drawn(name, attributes = {}) {
  const found = document.createElementNS(drawings, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  return found;
}

const isTyping = (target) => target.matches("input, select, textarea, [contenteditable]");
const counted = (number) => number.toLocaleString("en");
