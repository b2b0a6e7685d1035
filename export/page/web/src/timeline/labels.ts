// Where the texts along vertical lines go, so that none lies on another.

/** A Room is where texts may be, in pixels; they run upwards from the bottom, beside their lines. */
export interface Room {
	left: number;
	right: number;
	height: number;
	/** The height of a letter with what is left free around it. */
	thickness: number;
}

/** A Place is the left edge of a text, and how far above the bottom it begins. */
export interface Place {
	left: number;
	from: number;
}

interface Taken extends Place {
	to: number;
}

/** placeLabels finds a place for a text of a length at each line, the first served first; undefined: there is none left. */
export function placeLabels(lines: { x: number; length: number }[], room: Room): (Place | undefined)[] {
	const taken: Taken[] = [];
	return lines.map(({ x, length }) => {
		const places = [x - room.thickness, x]
			.filter((left) => left >= room.left && left + room.thickness <= room.right)
			.map((left) => ({ left, from: lowest(left, length, taken, room), crossed: crossed(left, lines, room) }))
			.filter((place) => place.from + length <= room.height)
			.sort((a, b) => a.crossed - b.crossed || a.from - b.from);
		const [best] = places;
		if (best) {
			taken.push({ left: best.left, from: best.from, to: best.from + length + room.thickness });
		}
		return best && { left: best.left, from: best.from };
	});
}

/** endPlaces are the middles of two texts near the ends of two curves, each above its own; the lower one is below it where they would meet. */
export function endPlaces(ends: [number, number], thickness: number): [number, number] {
	const above = (end: number) => end - thickness;
	const [first, second] = ends;
	if (Math.abs(first - second) >= 2 * thickness) {
		return [above(first), above(second)];
	}
	return first > second ? [first + thickness, above(second)] : [above(first), second + thickness];
}

/** lowest is how far above the bottom a text of a length is on no other. */
function lowest(left: number, length: number, taken: Taken[], { thickness }: Room): number {
	const beside = taken.filter((other) => Math.abs(other.left - left) < thickness);
	const free = (from: number) => beside.every((other) => from >= other.to || from + length <= other.from);
	return [0, ...beside.map((other) => other.to)].filter(free).sort((a, b) => a - b)[0]!;
}

/** crossed is how many lines run through a text. */
function crossed(left: number, lines: { x: number }[], { thickness }: Room): number {
	return lines.filter(({ x }) => x > left + 1 && x < left + thickness - 1).length;
}
