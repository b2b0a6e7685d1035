// The colours of components: the same for a name wherever it stands.

/** A Hue is an angle in OKLCH, and whether it is a colour or grey. */
export interface Hue {
	angle: number;
	grey: boolean;
}

/** Frequent components, with hues as different as possible. Neighbours seldom occur together. */
const known: Record<string, number> = {
	autograd: 20,
	nccl: 30,
	torch: 42,
	cublas: 55,
	"inductor-run": 70,
	cudnn: 85,
	"inductor-compile": 98,
	dynamo: 115,
	numpy: 140,
	pinned: 155,
	"hf-arrow": 165,
	dataloader: 185,
	tokenizers: 205,
	python: 250,
	metrics: 275,
	logging: 290,
	optimizer: 305,
	cuda: 320,
	pil: 340,
};

/** The system, and memory without a component: grey. */
const greys = new Set(["", "libc", "allocator", "kernel", "openmp", "file", "before-tracing", "unexplained", "unknown", "other"]);

/** hueOf is the colour of a component. */
export function hueOf(component: string): Hue {
	if (greys.has(component)) {
		return { angle: 0, grey: true };
	}
	return { angle: Object.hasOwn(known, component) ? known[component]! : hash(component) % 360, grey: false };
}

/** hash is FNV-1a of the first characters. */
function hash(text: string): number {
	let h = 0x811c9dc5;
	for (let i = 0; i < Math.min(text.length, 200); i++) {
		h = Math.imul(h ^ text.charCodeAt(i), 0x01000193) >>> 0;
	}
	return h;
}

/** paint gives an element the colour of a component; the style sheet makes the shades of it. */
export function paint(element: HTMLElement | SVGElement, component: string): void {
	const { angle, grey } = hueOf(component);
	element.style.setProperty("--hue", String(angle));
	element.style.setProperty("--chroma", grey ? "0" : "1");
}

/** token is a colour of the style sheet as it is at this moment. */
export function token(name: string): string {
	return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
