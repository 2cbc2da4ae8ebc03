/** Elements without markup in strings. */

/**
 * @param {string} name
 * @param {Record<string, string>} [attributes] `class`, `role`, `aria-…`
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** @returns {any} The element of that id, which the document has. */
export function byId(id) {
  return document.getElementById(id);
}

/** Sets text only where it differs, so that nothing is laid out or read again for nothing. */
export function show(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
