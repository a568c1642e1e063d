"""The interface between terminals and drivers (AMQ RFC005). Router and broker meet only here."""
