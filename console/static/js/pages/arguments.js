// The arguments of queues with their help, for the forms that create and change queues.

const LIMITS = [
  { name: "max-messages", label: "Maximum messages", type: "number", help: "The queue holds at most this many messages." },
  { name: "max-bytes", label: "Maximum bytes", type: "number", help: "The messages on the queue have at most this size together." },
  { name: "overflow", label: "When it is full", type: "select", help: "What happens to a message beyond the limits.", options: [
    ["", "Default"], ["reject", "Reject the message"], ["block", "Senders wait"], ["ring", "Remove the oldest message"], ["drop", "Drop the new message"]] },
  { name: "message-ttl-ms", label: "Time to live (ms)", type: "number", help: "Messages expire after this time on the queue." },
];

const FAILURES = [
  { name: "dead-letter-address", label: "Dead-letter address", help: "The address for messages that were rejected or failed too often." },
  { name: "max-deliveries", label: "Maximum deliveries", type: "number", help: "Failed deliveries until a message is dead-lettered." },
  { name: "retry-delay-ms", label: "Retry delay (ms)", type: "number", help: "The delay after the first failure. It doubles with each further failure." },
  { name: "max-retry-delay-ms", label: "Maximum retry delay (ms)", type: "number", help: "The upper limit of the retry delay." },
  { name: "expiry-address", label: "Expiry address", help: "The address for expired messages." },
];

const ORDER = [
  { name: "priorities", label: "Priorities", type: "checkbox", help: "Messages with a higher priority (9 to 0) are delivered first." },
  { name: "message-groups", label: "Message groups", type: "checkbox", help: "Messages of one group-id go to one consumer until it leaves." },
  { name: "single-active-consumer", label: "Single active consumer", type: "checkbox", help: "The first consumer receives all messages, the next one when it leaves." },
  { name: "last-value-key", label: "Last-value key", help: "An application property, or subject: only the newest message of each value stays." },
  { name: "duplicate-window", label: "Duplicate window", type: "number", help: "How many message IDs the queue remembers. A message with a remembered ID is not stored again." },
];

const STATE = [
  { name: "exclusive", label: "Exclusive", type: "checkbox", help: "At most one consumer at a time." },
  { name: "paused", label: "Paused", type: "checkbox", help: "Consumers receive nothing until the queue continues. Browsers are not affected." },
];

const withValues = (fields, values) => fields.map((one) => ({ ...one, value: values[one.name] ?? "" }));

/** The parts of a form with all arguments of a new queue. */
export const creationParts = () => [
  { title: "Limits", fields: LIMITS }, { title: "Dead letters and retries", fields: FAILURES },
  { title: "Order and consumers", fields: [...ORDER, ...STATE] },
];

/** The parts of a form with the arguments that can be changed, with their present values. */
export const changeParts = (values) => [
  { title: "Limits", fields: withValues(LIMITS, values), open: true }, { title: "Dead letters and retries", fields: withValues(FAILURES, values) },
  { title: "Consumers", fields: withValues(STATE, values) },
];

/** The arguments that *entered* values stand for: check boxes that are off are left out. */
export function argumentsOf(entered) {
  const names = [...LIMITS, ...FAILURES, ...ORDER, ...STATE].map((one) => one.name);
  return Object.fromEntries(Object.entries(entered).filter(([name, value]) => names.includes(name) && value !== false));
}

/** The changes from *before*: null removes an argument. */
export function argumentChanges(before, entered) {
  const after = argumentsOf(entered);
  const names = [...LIMITS, ...FAILURES, ...STATE].map((one) => one.name);
  return Object.fromEntries(names.filter((name) => String(before[name] ?? "") !== String(after[name] ?? "") && !(before[name] === false && after[name] === undefined))
    .map((name) => [name, after[name] ?? null]));
}
