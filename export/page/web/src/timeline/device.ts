// Device memory beside that of the host, in one picture.
import type { Curve, TimelineData } from "../data";

/** isDevice is whether a curve is of memory on GPUs. */
export function isDevice(curve: Curve): boolean {
	return curve.key.startsWith("device_");
}

/** How many times as high the one may be as the other for both to be readable along one axis. */
const readable = 4;

/** areApart is whether device memory has an axis of its own: along that of the host the lower of the two would be flat. */
export function areApart(series: Curve[]): boolean {
	const highest = (of: Curve[]) =>
		of.reduce((most, { values }) => values.reduce<number>((high, value) => Math.max(high, value ?? 0), most), 0);
	const shown = series.filter((curve) => curve.shown && curve.unit === "bytes");
	const [device, host] = [highest(shown.filter(isDevice)), highest(shown.filter((curve) => !isDevice(curve)))];
	return device > 0 && host > 0 && Math.max(device, host) > readable * Math.min(device, host);
}

/** Scale is that of an axis: bytes of the host, or of all; bytes of devices; counts. */
export type Scale = "y" | "d" | "n";

/** scaleOf is the scale along which a curve is drawn. */
export function scaleOf(curve: Curve, apart: boolean): Scale {
	if (curve.unit === "count") {
		return "n";
	}
	return apart && isDevice(curve) ? "d" : "y";
}

/** strips is how many rows of phases there are: those of the host, and those of device memory where it is judged. */
export function strips({ device_phases }: TimelineData): number {
	return device_phases?.length ? 2 : 1;
}

/** namedCurves are those that are named in the picture, where there are two kinds of memory in it. */
export function namedCurves(series: Curve[]): { index: number; text: string }[] {
	const device = series.findIndex((curve) => curve.shown && isDevice(curve));
	const host = series.findIndex((curve) => curve.key === "rss");
	if (device < 0 || host < 0) {
		return [];
	}
	return [
		{ index: host, text: "RSS" },
		{ index: device, text: "device memory" },
	];
}
