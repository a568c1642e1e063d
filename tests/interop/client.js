// A client of the interop tests on rhea. test_interop.py describes its commands and output.
'use strict';

const container = require('rhea');
const {filter, types} = container;

const [url, verb, address, first, mode, size] = process.argv.slice(2);
const settled = mode === 'settled';
const [host, port] = url.split(':');
let failed = false;

function bodyOf(number) {
    const body = Buffer.alloc(Number(size));
    for (let at = 0; at < body.length; ++at) body[at] = (number + at) % 251;
    return body;
}

function say(what) {
    process.stdout.write(what + '\n');
}

function fail(why) {
    failed = true;
    say('failed: ' + why);
    process.exitCode = 1;
}

function done(context, what) {
    say(what);
    context.connection.close();
}

const verbs = {
    send(connection) {
        const count = Number(first);
        let sent = 0;
        let accepted = 0;
        connection.open_sender({target: address, snd_settle_mode: settled ? 1 : 0});
        container.on('sendable', (context) => {
            while (context.sender.sendable() && sent < count) {
                const body = container.message.data_section(bodyOf(sent));
                context.sender.send({durable: true, subject: String(sent++), body});
                if (settled && sent === count) done(context, 'sent ' + count);
            }
        });
        container.on('accepted', (context) => {
            if (++accepted === count) done(context, 'sent ' + count);
        });
        container.on('rejected', () => fail('rejected'));
    },
    receive(connection) {
        // a letter for each message to receive
        const outcomes = {
            a: (delivery) => delivery.accept(),
            x: (delivery) => delivery.reject({condition: 'test:rejected', description: 'as told'}),
            r: (delivery) => delivery.release({delivery_failed: false}),
            m: (delivery) => delivery.modified({delivery_failed: true, undeliverable_here: false}),
        };
        let received = 0;
        const options = {source: address, credit_window: 0, autoaccept: false, snd_settle_mode: settled ? 1 : 0};
        connection.open_receiver(options).add_credit(first.length);
        container.on('message', (context) => {
            const {message, delivery} = context;
            const body = Buffer.isBuffer(message.body) ? message.body : message.body.content;
            if (message.subject !== String(received) || !body.equals(bodyOf(received))) {
                fail('message ' + received + ' is not what was sent');
            }
            // the last transfer settles a long message, as the specification allows; rhea checks the first one
            if (!settled) outcomes[first[received]](delivery);
            else if (!delivery.remote_settled && body.length < 10000) fail('it is not settled');
            if (++received === first.length) done(context, 'received ' + received);
        });
    },
    take(connection) {
        const source = {address};
        const options = {source, credit_window: 0};
        let said = 'took';
        if (first === 'copy') source.distribution_mode = 'copy';
        if (first === 'durable') {
            Object.assign(source, {durable: 2, expiry_policy: 'never'});
            options.name = 'subscription';
        }
        if (mode) source.filter = filter.selector(mode);
        const receiver = connection.open_receiver(options);
        receiver.drain = true;
        receiver.add_credit(100);
        container.on('message', (context) => { said += ' ' + context.message.subject; });
        container.on('receiver_drained', (context) => {
            if (first === 'durable') receiver.detach();
            done(context, said);
        });
    },
    types(connection) {
        // a message of each type, and its encoding
        // encoding a value as a body changes the value, so each use creates a new one
        const scalars = {
            boolean: () => types.wrap_boolean(true), ubyte: () => types.wrap_ubyte(255),
            ushort: () => types.wrap_ushort(65535),
            uint: () => types.wrap_uint(4294967295), uint0: () => types.wrap_uint(0), ulong: () => types.wrap_ulong(1e15),
            byte: () => types.wrap_byte(-128), short: () => types.wrap_short(-32768),
            int: () => types.wrap_int(-2147483648), long: () => types.wrap_long(-1e15),
            float: () => types.wrap_float(0.5), double: () => types.wrap_double(-1e300),
            timestamp: () => types.wrap_timestamp(1700000000000), char: () => types.wrap_char(0x1f407),
            uuid: () => types.wrap_uuid(Buffer.from('00112233445566778899aabbccddeeff', 'hex')),
            binary: () => types.wrap_binary(Buffer.from([0, 255, 10])),
            string: () => types.wrap_string('gr\u00fc\u00dfe \u{1f407}'),
            long_string: () => types.wrap_string('x'.repeat(1000)), symbol: () => types.wrap_symbol('a-symbol'),
        };
        const compound = {
            null: null, list: types.wrap_list([1, 'two', [3], null]), empty: types.wrap_list([]),
            map: types.wrap_map({a: 1, b: {c: true}}), array: types.wrap_array([1, 2, 3], 0x71),
            symbols: types.wrap_array(['a', 'bc'], 0xa3), described: types.wrap_described('s', 'a:descriptor'),
        };
        const sent = Object.entries(scalars).map(([subject, value]) => (
            {durable: true, subject, application_properties: {value: value()}, body: value()}
        )).concat(Object.entries(compound).map(([subject, value]) => ({durable: true, subject, body: value})));
        sent.push({durable: true, subject: 'data', body: container.message.data_section(Buffer.alloc(300, 7))});
        sent.push({durable: true, subject: 'sequence', body: container.message.sequence_section([1, 'two'])});
        sent.push({
            durable: true, priority: 9, subject: 'everything', to: address, reply_to: 'r', correlation_id: 'c',
            message_id: types.wrap_ulong(7), content_type: 'text/plain', content_encoding: 'e', group_id: 'g',
            group_sequence: 3, reply_to_group_id: 'rg', user_id: Buffer.from('u'), absolute_expiry_time: 4102444800000,
            creation_time: 1700000000000, message_annotations: {'x-opt-a': 1}, footer: {f: 'oot'}, body: 'b',
        });
        const sender = connection.open_sender({target: address});
        let accepted = 0;
        container.once('sendable', () => {
            for (const message of sent) {
                say(container.message.encode(message).toString('hex'));
                sender.send(message);
            }
        });
        container.on('accepted', (context) => {
            if (++accepted === sent.length) done(context, 'sent ' + sent.length);
        });
    },
    reconnect(connection) {
        // the broker is restarted; rhea opens the receiver again
        let open = 0;
        connection.open_receiver(address);
        container.on('receiver_open', () => say('open ' + (++open)));
        container.on('message', (context) => done(context, 'received ' + context.message.subject));
    },
    ask(connection) {
        const sender = connection.open_sender(address);
        const receiver = connection.open_receiver({source: {address: '', dynamic: true}});
        container.once('receiver_open', () => {
            sender.send({body: first, reply_to: receiver.source.address});
        });
        container.on('message', (context) => done(context, 'answered ' + context.message.body));
    },
};

for (const kind of ['sender', 'receiver']) {
    container.on(kind + '_error', (context) => done(context, 'refused: ' + context[kind].error.condition));
}
container.on('connection_error', (context) => {
    if (verb !== 'reconnect') fail(String(context.connection.error));
});
container.on('disconnected', (context) => {
    if (context.error && !failed && verb !== 'reconnect') fail(String(context.error));
});
const reconnect = verb === 'reconnect' ? 50 : false;
container.id = 'interop';
verbs[verb](container.connect({host, port: Number(port), reconnect}));
