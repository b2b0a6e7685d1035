// Numbers for people, written as export/units does.

/** fixed is Go's %.nf: what lies halfway goes to the even digit. */
export function fixed(x: number, digits: number): string {
	const halves = 2 ** (digits + 1) * x;
	if (!Number.isInteger(halves) || halves % 2 === 0) {
		return x.toFixed(digits);
	}
	const low = Math.floor(x * 10 ** digits);
	return ((low + Math.abs(low % 2)) / 10 ** digits).toFixed(digits);
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

/** bytes is a size with three significant digits. */
export function bytes(size: number): string {
	let unit = 0;
	for (; Math.abs(size) >= 1000 && unit < units.length - 1; unit++) {
		size /= 1024;
	}
	const large = Math.abs(size);
	return `${fixed(size, unit === 0 || large >= 100 ? 0 : large >= 10 ? 1 : 2)} ${units[unit]}`;
}

/** tickBytes are the sizes along an axis, in one unit, with as many digits as make neighbours differ. */
export function tickBytes(sizes: number[]): string[] {
	const largest = Math.max(...sizes.map(Math.abs));
	let unit = 0;
	while (largest / 1024 ** unit >= 1024 && unit < units.length - 1) {
		unit++;
	}
	const apart = sizes.length > 1 ? Math.abs(sizes[1]! - sizes[0]!) / 1024 ** unit : 1;
	const digits = Math.max(0, Math.min(3, Math.ceil(-Math.log10(apart) - 1e-9)));
	const exact = Number.isInteger(apart * 10 ** digits) ? digits : Math.min(3, digits + 1);
	return sizes.map((size) => `${fixed(size / 1024 ** unit, exact)} ${units[unit]}`);
}

/** count is a number of things: 950, 12.3 k, 4.5 M. */
export function count(n: number): string {
	for (const [size, from, unit] of [
		[1e9, 1e9, "G"],
		[1e6, 1e6, "M"],
		[1e3, 1e4, "k"],
	] as const) {
		if (n >= from) {
			return `${fixed(n / size, 1)} ${unit}`;
		}
	}
	return fixed(n, 0);
}

/** share is a part of a whole in percent: 34.5%, 0.02%. */
export function share(part: number, whole: number): string {
	const percent = whole > 0 ? (100 * part) / whole : 0;
	return `${percent > 0 && percent < 0.1 ? percent.toPrecision(1) : fixed(percent, 1)}%`;
}

const hour = 3600;

/** clock is a moment of a trace of so many seconds: 1:05 (min:s), or 2:01:05 where the trace takes hours. */
export function clock(seconds: number, whole: number): string {
	const s = Math.round(seconds);
	const two = (n: number) => String(Math.floor(n)).padStart(2, "0");
	if (whole < hour) {
		return `${Math.floor(s / 60)}:${two(s % 60)}`;
	}
	return `${Math.floor(s / hour)}:${two((s % hour) / 60)}:${two(s % 60)}`;
}

/** tickClocks are the moments along an axis: min:s, or h:min where the trace takes hours; with seconds where they differ in them. */
export function tickClocks(moments: number[], whole: number): string[] {
	const minutes = whole >= hour && moments.every((s) => s % 60 === 0);
	return moments.map((s) => (minutes ? clock(s, whole).slice(0, -3) : clock(s, whole)));
}

/** clockUnit is what the numbers of tickClocks are. */
export function clockUnit(whole: number): string {
	return whole < hour ? "min:s" : "h:min";
}

/** shorten cuts a text to so many characters. */
export function shorten(text: string, length: number): string {
	if (text.length <= length) {
		return text;
	}
	const characters = [...text.slice(0, 2 * length)];
	return characters.length > length || text.length > 2 * length ? `${characters.slice(0, length - 1).join("")}…` : text;
}
