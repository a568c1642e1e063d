// What clients on Node.js are asked to do when they fail over, where they may go, and how they say what happens. See
// test_failover.py.
'use strict';

const [verb, address, count, place] = [process.argv[2], process.argv[3], Number(process.argv[4]), process.argv[5]];
const first = {host: place.split(':')[0], port: Number(place.split(':')[1])};
let places = [first];

function say(what) {
    process.stdout.write(what + '\n');
}

module.exports = {
    verb, address, count, say,
    WINDOW: 20,  // messages under way
    KEPT: 10,  // of those received, so many are not settled at once
    opened: 0,  // how often a connection was
    place: attempt => places[attempt % places.length],
    // A connection is open: the broker has told of others.
    isOpen(connection) {
        const others = (connection.properties || {})['failover-server-list'] || [];
        if (others.length) places = [first, ...others.map(one => ({host: one['network-host'], port: one.port}))];
        ++this.opened;
        say(`open ${others.length}`);
    },
};
