// Style sheets are bundled for what they do, not for what they are.
declare module "*.css";
