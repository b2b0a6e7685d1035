// Elements, made of text alone.

type Attributes = Record<string, string | boolean>;

/** make makes an element with attributes; true is an empty attribute, false none. */
export function make<K extends keyof HTMLElementTagNameMap>(
	tag: K,
	attributes: Attributes = {},
	...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (value !== false) {
			element.setAttribute(name, value === true ? "" : value);
		}
	}
	element.append(...children);
	return element;
}

/** button makes a button that does something. */
export function button(text: string, act: () => void, attributes: Attributes = {}): HTMLButtonElement {
	const element = make("button", { type: "button", ...attributes }, text);
	element.addEventListener("click", act);
	return element;
}

/** choice makes a group of radio buttons, the first of them chosen. */
export function choice<T extends string>(title: string, name: string, options: [T, string][], choose: (value: T) => void) {
	const group = make("fieldset", { class: "choice" }, make("legend", {}, title));
	options.forEach(([value, text], i) => {
		const input = make("input", { type: "radio", name, value, checked: i === 0 });
		input.addEventListener("change", () => choose(value));
		group.append(make("label", {}, input, text));
	});
	return group;
}
