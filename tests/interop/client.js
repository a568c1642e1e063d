// A client of the interop tests on rhea. See test_interop.py for what it is asked to do and says.
'use strict';

const container = require('rhea');

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
        // a letter for each message, as many as there are to be received
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
            // a long message is settled by its last transfer, as the specification allows; rhea looks at the first one
            if (!settled) outcomes[first[received]](delivery);
            else if (!delivery.remote_settled && body.length < 10000) fail('it is not settled');
            if (++received === first.length) done(context, 'received ' + received);
        });
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
container.on('connection_error', (context) => fail(String(context.connection.error)));
container.on('disconnected', (context) => {
    if (context.error && !failed) fail(String(context.error));
});
verbs[verb](container.connect({host, port: Number(port), reconnect: false}));
